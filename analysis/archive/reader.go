// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/flate"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
)

// Bounds of an archive.
const (
	maxParts    = 1 << 18
	maxManifest = 256 << 20
	maxAnswers  = 1 << 19
	maxOpeners  = 64
	maxKallsyms = 256 << 20 // a kernel has a twentieth
	maxFile     = 4 << 30
	// A recording of so many bytes is always taken, a larger one if it is at
	// most maxRatio times the archive: deflate makes 1 GB of 1 MB of zeros.
	freeRecording = 1 << 30
	maxRatio      = 200
	// smallPart is kept in memory, larger ones in a file.
	smallPart = 1 << 20
)

// Archive is an open archive. Its openers may be used by several goroutines.
type Archive struct {
	size    int64
	parts   map[string]*zip.File
	openers int
	answers map[question]string
	byID    map[question]string // by kind and build-id alone
	vdso    buildid.ID
	kernel  Kernel
}

// Open reads the table of the archive in r, which has size bytes and must stay
// open. The error is ErrNotArchive or says what is wrong.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are no paths here
		return nil, fmt.Errorf("%w: %w", ErrNotArchive, err)
	}
	if len(z.File) > maxParts {
		return nil, fmt.Errorf("archive of %d parts: %w", len(z.File), ErrTooLarge)
	}
	z.RegisterDecompressor(zip.Deflate, flate.NewReader)
	a := &Archive{size: size, parts: make(map[string]*zip.File, len(z.File))}
	for _, f := range z.File {
		if a.parts[f.Name] != nil {
			return nil, fmt.Errorf("%w: %q is there twice", ErrNotArchive, f.Name)
		}
		a.parts[f.Name] = f
	}
	if a.parts[manifestName] == nil || a.parts[recordingName] == nil {
		return nil, fmt.Errorf("%w: a zip file without %s and %s", ErrNotArchive, manifestName, recordingName)
	}
	return a, a.readManifest()
}

func (a *Archive) readManifest() error {
	b, err := a.read(manifestName, maxManifest)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	switch {
	case m.Version != formatVersion:
		return fmt.Errorf("archive of version %d, this gantry reads %d", m.Version, formatVersion)
	case m.Openers < 0 || m.Openers > maxOpeners:
		return fmt.Errorf("%s: %d openers: %w", manifestName, m.Openers, ErrTooLarge)
	}
	if a.openers = m.Openers; m.Kernel != nil {
		a.kernel = *m.Kernel
	}
	a.answers = make(map[question]string, len(m.Answers))
	a.byID = make(map[question]string)
	for _, x := range m.Answers {
		if a.parts[x.File] == nil || x.Opener < 0 || x.Opener >= m.Openers {
			return fmt.Errorf("%s: no part %q of opener %d", manifestName, x.File, x.Opener)
		}
		a.answers[x.question] = x.File
		if x.Kind == binaryKind && x.Path == "[vdso]" && a.vdso.IsZero() {
			a.vdso = x.BuildID
		}
		if x.Kind != linkKind && x.Kind != codeKind && !x.BuildID.IsZero() && x.isShared() {
			a.byID[question{Kind: x.Kind, BuildID: x.BuildID}] = x.File
		}
	}
	return nil
}

// isShared reports whether a file is the same for all who ask for its id: by its
// content, or if it is the host's.
func (q *question) isShared() bool { return q.MountNS == 0 || q.BuildID.Kind() == buildid.KindContent }

// read reads a whole part of at most so many bytes.
func (a *Archive) read(name string, most uint64) ([]byte, error) {
	f := a.parts[name]
	if f == nil {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if f.UncompressedSize64 > most {
		return nil, fmt.Errorf("%s of %d bytes: %w", name, f.UncompressedSize64, ErrTooLarge)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	// The size is the archive's word: memory grows with what there is.
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(r, int64(f.UncompressedSize64))); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if uint64(b.Len()) != f.UncompressedSize64 {
		return nil, fmt.Errorf("%s: %w", name, io.ErrUnexpectedEOF)
	}
	return b.Bytes(), nil
}

// unpack puts a part into a file without a name, which is gone when it is
// closed.
func (a *Archive) unpack(name string, most uint64) (_ *os.File, size int64, err error) {
	f := a.parts[name]
	if f.UncompressedSize64 > most {
		return nil, 0, fmt.Errorf("%s of %d bytes: %w", name, f.UncompressedSize64, ErrTooLarge)
	}
	r, err := f.Open()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	out, err := os.CreateTemp("", "gantry-archive-")
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	if err := os.Remove(out.Name()); err != nil {
		return nil, 0, err
	}
	size, err = io.Copy(out, io.LimitReader(r, int64(f.UncompressedSize64)))
	if err == nil && uint64(size) != f.UncompressedSize64 {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("unpack %s: %w", name, err)
	}
	return out, size, nil
}

// Recording unpacks the recording into a file without a name. The caller closes
// it.
func (a *Archive) Recording() (*os.File, int64, error) {
	return a.unpack(recordingName, uint64(max(freeRecording, maxRatio*a.size)))
}

// Kallsyms is the text of the recorded kernel's symbols. The error is
// fs.ErrNotExist if they were not there when the archive was made.
func (a *Archive) Kallsyms() ([]byte, error) { return a.read(kallsymsName, maxKallsyms) }

// Kernel is the kernel whose symbols are those of Kallsyms; zero if the archive
// does not tell.
func (a *Archive) Kernel() Kernel { return a.kernel }

// VDSO is the build-id of what was mapped as "[vdso]", the first one if there are
// several; zero if the archive has none.
func (a *Archive) VDSO() buildid.ID { return a.vdso }

// Openers are as many as there were when the archive was made. They open what
// those did.
func (a *Archive) Openers() []symbol.Opener {
	list := make([]symbol.Opener, a.openers)
	for i := range list {
		list[i] = &opener{a, i}
	}
	return list
}

// opener answers in the name of one opener.
type opener struct {
	a     *Archive
	index int
}

var (
	_ symbol.DebugOpener   = (*opener)(nil)
	_ symbol.LinkOpener    = (*opener)(nil)
	_ symbol.PerfMapOpener = (*opener)(nil)
)

// Place is what reports call the files that Open finds.
func (o *opener) Place() string { return "archive" }

func (o *opener) Open(ref symbol.Ref) (symbol.File, int64, error) {
	return o.open(ask(o.index, binaryKind, ref, ""))
}

func (o *opener) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	return o.open(ask(o.index, debugKind, ref, ""))
}

func (o *opener) OpenLink(ref symbol.Ref, path string) (symbol.File, int64, error) {
	return o.open(ask(o.index, linkKind, ref, path))
}

func (o *opener) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	return o.open(ask(o.index, codeKind, ref, ""))
}

// open opens the file that answers the question. A file known by its id is the
// same whoever asks: another report may meet it at another path first.
func (o *opener) open(q question) (symbol.File, int64, error) {
	name, ok := o.a.answers[q]
	if !ok && q.isShared() && !q.BuildID.IsZero() && q.Kind != linkKind && q.Kind != codeKind {
		name, ok = o.a.byID[question{Kind: q.Kind, BuildID: q.BuildID}]
	}
	if !ok {
		return nil, 0, fmt.Errorf("open %s: not in the archive: %w", q.Path, fs.ErrNotExist)
	}
	f, size, err := o.a.file(name)
	if err != nil {
		return nil, 0, err
	}
	// Symbols of a binary that is known by its content have its build-id, which
	// who asks for them checks.
	ofContent := q.Kind == debugKind && q.BuildID.Kind() == buildid.KindContent
	if q.BuildID.IsZero() || q.Kind == linkKind || q.Kind == codeKind || ofContent {
		return f, size, nil
	}
	if err := buildid.Check(f, size, q.BuildID); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("%s in the archive: %w: %w", name, symbol.ErrMismatch, err)
	}
	return f, size, nil
}

// file unpacks a part.
func (a *Archive) file(name string) (symbol.File, int64, error) {
	if a.parts[name].UncompressedSize64 > smallPart {
		return a.unpack(name, maxFile)
	}
	b, err := a.read(name, smallPart)
	if err != nil {
		return nil, 0, err
	}
	return memory{bytes.NewReader(b)}, int64(len(b)), nil
}

// memory is a small part.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }
