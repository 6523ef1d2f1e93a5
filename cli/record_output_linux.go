// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/internal/hint"
)

// recordOutput is where a recording goes.
type recordOutput struct {
	capture.Output
	file *os.File // nil: standard output
	// older is what the file that was there before is called now, "" if there
	// was none.
	older string
	isNew bool // there was no such file
}

// open creates the output. An older file becomes FILE.old.
func (f *recordFlags) open(e *env) (*recordOutput, error) {
	if f.output == "-" {
		if err := refuseTerminal(e, f.output, "pipe it into gantry report -i -, or name a file with -o"); err != nil {
			return nil, err
		}
		return &recordOutput{Output: capture.Output{Pipe: e.stdout}}, nil
	}
	o := new(recordOutput)
	_, err := os.Lstat(f.output)
	o.isNew = errors.Is(err, fs.ErrNotExist)
	info, err := os.Stat(f.output)
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		o.older = f.output + ".old"
		if err := os.Rename(f.output, o.older); err != nil {
			return nil, outputError(fmt.Errorf("keep the old file: %w", err))
		}
	}
	file, err := os.OpenFile(f.output, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, outputError(errors.Join(err, o.putBack(f.output)))
	}
	o.file = file
	if info, err = file.Stat(); err != nil {
		return nil, outputError(errors.Join(err, file.Close(), o.putBack(f.output)))
	}
	if info.Mode().IsRegular() {
		o.File = file
	} else { // a pipe or device cannot be patched when the recording ends
		o.Pipe = file
	}
	return o, nil
}

// Close closes the file.
func (o *recordOutput) Close() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}

// putBack gives the older file its name again, if there was one: the recording
// in its place is none. Otherwise the next attempt would take the name from it
// for good. Without an older one, there is no file as before.
func (o *recordOutput) putBack(path string) error {
	if o.older == "" {
		if o.isNew && o.File != nil {
			return os.Remove(path)
		}
		return nil
	}
	return os.Rename(o.older, path)
}

func outputError(err error) error {
	return hint.Wrap(err, "choose a file that you may write with -o")
}

// nothing reports whether a recording that failed has no sample, or none that
// was asked for.
func nothing(res *capture.Result, err error, path string) bool {
	var command *capture.CommandError
	if res == nil || errors.As(err, &command) {
		return true
	}
	n, unreadable := countSamples(path)
	return n == 0 && (unreadable == nil || res.Written == 0)
}
