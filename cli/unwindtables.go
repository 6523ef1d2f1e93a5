// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/unwind"
	"github.com/gantry-tools/gantry/buildid"
)

// unwindTables keeps unwind tables in the build-id store.
type unwindTables struct{ store *buildid.Store }

var _ analysis.UnwindTables = unwindTables{}

// LoadUnwind reads the tables of a file.
func (t unwindTables) LoadUnwind(id buildid.ID) ([]byte, error) {
	f, size, err := t.store.LookupUnwind(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > unwind.MaxKept {
		return nil, unwind.ErrKept
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read unwind tables of %s: %w", id, err)
	}
	return b, nil
}

// SaveUnwind writes them.
func (t unwindTables) SaveUnwind(id buildid.ID, path string, data []byte) error {
	return t.store.AddUnwind(bytes.NewReader(data), id, path)
}
