// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
)

// flateLevel is quick rather than small.
const flateLevel = 3

// Stats count what a Writer has packed.
type Stats struct {
	Binaries, Debug int
	Kallsyms        bool
	// Bytes are those of all parts, before they were compressed.
	Bytes int64
}

// Writer packs an archive. The recording goes first; then a report is made with
// Openers, which packs what it opens. Openers may be used by several goroutines.
type Writer struct {
	mu    sync.Mutex
	zip   *zip.Writer
	list  manifest
	known map[question]bool
	files map[[sha256.Size]byte]string // parts by content
	names map[string]bool
	stats Stats
	err   error // the first
}

// NewWriter makes a Writer to w, which stays the caller's to close.
func NewWriter(w io.Writer) *Writer {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate,
		func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flateLevel) })
	return &Writer{
		zip: z, list: manifest{Version: formatVersion, Answers: answers{}},
		known: make(map[question]bool), files: make(map[[sha256.Size]byte]string), names: make(map[string]bool),
	}
}

// Recording packs the recording.
func (w *Writer) Recording(r io.Reader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pack(recordingName, r)
}

// Kallsyms packs the text of the symbols of the kernel of.
func (w *Writer) Kallsyms(r io.Reader, of Kernel) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Kallsyms, w.list.Kernel = true, &of
	return w.pack(kallsymsName, r)
}

// pack writes one part. The first error is the Writer's for good: what comes
// behind a part that is cut off cannot be found.
func (w *Writer) pack(name string, r io.Reader) error {
	if w.err != nil {
		return w.err
	}
	part, err := w.zip.Create(name)
	if err == nil {
		var n int64
		n, err = io.Copy(part, r)
		w.stats.Bytes += n
	}
	if err != nil {
		w.err = fmt.Errorf("pack %s: %w", name, err)
	}
	w.names[name] = true
	return w.err
}

// Close writes the answers and ends the archive.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	part, err := w.zip.Create(manifestName)
	if err == nil {
		enc := json.NewEncoder(part)
		enc.SetIndent("", " ")
		err = enc.Encode(&w.list)
	}
	if err == nil {
		err = w.zip.Close()
	}
	if err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}

// Stats count what was packed so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Openers gives openers that do what these do, and pack what they open.
func (w *Writer) Openers(list []symbol.Opener) []symbol.Opener {
	w.list.Openers = len(list)
	out := make([]symbol.Opener, len(list))
	for i, o := range list {
		out[i] = &tee{w, i, o}
	}
	return out
}

// tee is an opener whose files are packed.
type tee struct {
	w     *Writer
	index int
	inner symbol.Opener
}

var (
	_ symbol.DebugOpener   = (*tee)(nil)
	_ symbol.LinkOpener    = (*tee)(nil)
	_ symbol.PerfMapOpener = (*tee)(nil)
)

func (t *tee) Open(ref symbol.Ref) (symbol.File, int64, error) {
	f, size, err := t.inner.Open(ref)
	return t.keep(ask(t.index, binaryKind, ref, ""), f, size, err)
}

func (t *tee) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	inner, ok := t.inner.(symbol.DebugOpener)
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	f, size, err := inner.OpenDebug(ref)
	return t.keep(ask(t.index, debugKind, ref, ""), f, size, err)
}

func (t *tee) OpenLink(ref symbol.Ref, path string) (symbol.File, int64, error) {
	inner, ok := t.inner.(symbol.LinkOpener)
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	f, size, err := inner.OpenLink(ref, path)
	return t.keep(ask(t.index, linkKind, ref, path), f, size, err)
}

func (t *tee) OpenPerfMap(ref symbol.Ref) (symbol.File, int64, error) {
	inner, ok := t.inner.(symbol.PerfMapOpener)
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	f, size, err := inner.OpenPerfMap(ref)
	return t.keep(ask(t.index, codeKind, ref, ""), f, size, err)
}

// keep packs what was opened. A file that is not the wanted one, or is no ELF
// file, is passed on without: the report does not take it either, and who wrote
// the recording chose the path.
func (t *tee) keep(q question, f symbol.File, size int64, err error) (symbol.File, int64, error) {
	if err != nil {
		return nil, 0, err
	}
	if !wanted(q, f, size) {
		return f, size, nil
	}
	if err := t.w.answer(q, f, size); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

func wanted(q question, f io.ReaderAt, size int64) bool {
	if q.Kind == codeKind {
		return symbol.IsCode(f, size)
	}
	if q.Kind == linkKind || q.BuildID.IsZero() || q.Kind == debugKind && q.BuildID.Kind() == buildid.KindContent {
		_, err := elffile.Open(f, size)
		return err == nil || symbol.IsDump(f, size)
	}
	return buildid.Check(f, size, q.BuildID) == nil
}

// answer notes which file answers a question, and packs it if it is new.
func (w *Writer) answer(q question, f io.ReaderAt, size int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.known[q] {
		return w.err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return fmt.Errorf("read %s: %w", q.Path, err)
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	name := w.files[sum]
	if name == "" {
		name = w.nameOf(q, f, size, sum)
		if err := w.pack(name, io.NewSectionReader(f, 0, size)); err != nil {
			return err
		}
		w.files[sum] = name
		if q.Kind == binaryKind {
			w.stats.Binaries++
		} else {
			w.stats.Debug++
		}
	}
	w.known[q] = true
	w.list.Answers = append(w.list.Answers, answer{q, name})
	return nil
}

// nameOf is a name for a file: the place that perf looks for it, if that is
// free.
func (w *Writer) nameOf(q question, f io.ReaderAt, size int64, sum [sha256.Size]byte) string {
	id := q.BuildID
	if q.Kind != debugKind {
		id, _ = buildid.Identify(f, size) // what is no ELF file has none
	}
	if id.Len() > 1 {
		base := map[kind]string{binaryKind: "elf", debugKind: "debug", linkKind: "debug"}[q.Kind]
		if name := storeName(id, base); !w.names[name] {
			return name
		}
	}
	return filesDir + hex.EncodeToString(sum[:])
}
