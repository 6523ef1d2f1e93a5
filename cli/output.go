// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/gantry-tools/gantry/internal/hint"
)

// writeOutput gives write the file at path, "-" for stdout, buffered. What
// fails before it has written anything leaves the file as it was, or none.
func writeOutput(e *env, path string, write func(io.Writer) error) error {
	const all = 0o666 // less the umask
	return writeFile(e, path, all, write)
}

// writeFile is writeOutput to a file that is made with these permissions.
func writeFile(e *env, path string, perm os.FileMode, write func(io.Writer) error) (err error) {
	out := &outputFile{path: path, perm: perm, w: e.stdout}
	if path != "-" {
		out.w = nil
	}
	w := bufio.NewWriterSize(out, 64<<10)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = out.open() // nothing to write is a file as well
	}
	return errors.Join(err, out.close())
}

// outputFile is opened by the first write.
type outputFile struct {
	path   string
	perm   os.FileMode
	w      io.Writer
	f      *os.File
	isNew  bool // there was no such file
	failed bool // not all was written
}

func (o *outputFile) Write(b []byte) (int, error) {
	if err := o.open(); err != nil {
		return 0, err
	}
	n, err := o.w.Write(b)
	o.failed = o.failed || err != nil
	return n, err
}

func (o *outputFile) open() (err error) {
	if o.w != nil {
		return nil
	}
	_, err = os.Lstat(o.path)
	o.isNew = errors.Is(err, fs.ErrNotExist)
	if o.f, err = os.OpenFile(o.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, o.perm); err != nil {
		return hint.Wrap(err, "choose a place you may write to with -o FILE")
	}
	o.w = o.f
	return nil
}

// close removes a file of which only a part could be written.
func (o *outputFile) close() error {
	if o.f == nil {
		return nil
	}
	err := o.f.Close()
	if (o.failed || err != nil) && o.isNew {
		err = errors.Join(err, os.Remove(o.path))
	}
	return err
}
