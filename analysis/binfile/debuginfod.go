// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid/debuginfod"
)

var _ symbol.DebugOpener = (*Debuginfod)(nil)

// Debuginfod gets files by their build-id from the servers of a client.
type Debuginfod struct {
	*debuginfod.Client
}

// Place is what reports call the files that Open finds.
func (d *Debuginfod) Place() string { return "debuginfod" }

// Open gets the file with the build-id of ref.
func (d *Debuginfod) Open(ref symbol.Ref) (symbol.File, int64, error) {
	return d.get(ref, debuginfod.Executable)
}

// OpenDebug gets the separate symbols of the binary with the build-id of ref.
func (d *Debuginfod) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	return d.get(ref, debuginfod.Debuginfo)
}

// get returns fs.ErrNotExist for every failure of a server: the client counts failures,
// and no binary of the recording is at fault.
func (d *Debuginfod) get(ref symbol.Ref, kind debuginfod.Kind) (symbol.File, int64, error) {
	f, size, err := d.Find(context.Background(), ref.BuildID, kind)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %v", fs.ErrNotExist, err)
		}
		return nil, 0, err
	}
	return f, size, nil
}
