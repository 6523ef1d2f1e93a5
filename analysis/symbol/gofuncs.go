// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis/symbol/pclntab"
)

// addGo adds the functions of a Go program, which its runtime needs to know even
// if the program is stripped. r has the file.
func (s *symbolReader) addGo(r io.ReaderAt) error {
	t, err := pclntab.Read(s.file, r, s.size)
	if err != nil {
		return fmt.Errorf("functions of Go: %w", err)
	}
	s.from = fromGo
	for i := range min(t.Len(), maxSymbols) {
		name, start, end := t.Func(i)
		if name == "" || end <= start || !s.mayCopy(len(name)+1) {
			continue
		}
		e := entry{start: start, end: end, name: uint32(len(s.names)), bind: bindGlobal}
		s.names = append(append(s.names, name...), 0)
		s.keep(e)
	}
	return nil
}
