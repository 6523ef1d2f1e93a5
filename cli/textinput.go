// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/perf/perftext"
)

// textMagic is what a recording in the form of text starts with.
const textMagic = "perfdata "

// isText reports whether the file at path is a recording as text.
func isText(path string) bool { return begins(path, textMagic) }

// begins reports whether the regular file at path begins with magic.
func begins(path, magic string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false // the reader says why
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	b := make([]byte, len(magic))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == magic
}

// openText reads what gantry script --raw printed, as if it were the file it
// was printed from.
func openText(path string) (*perfdata.Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rec, err := perftext.Parse(f)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("%s:%w", path, err), "the form is that of 'gantry script --raw'")
	}
	if rec.Pipe {
		var b bytes.Buffer
		if err := rec.WriteStream(&b); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return perfdata.NewPipeReader(&b, nil)
	}
	var m memory
	if err := rec.WriteData(&m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return perfdata.NewReader(bytes.NewReader(m.b), int64(len(m.b)), nil)
}

// memory is a file in memory.
type memory struct{ b []byte }

func (m *memory) Write(p []byte) (int, error) {
	m.b = append(m.b, p...)
	return len(p), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p) - len(m.b); n > 0 {
		m.b = append(m.b, make([]byte, n)...)
	}
	return copy(m.b[off:], p), nil
}
