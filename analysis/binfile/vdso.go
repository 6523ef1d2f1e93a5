// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"bytes"
	"fmt"
	"io/fs"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

var _ symbol.Opener = VDSO{}

// VDSO opens the vdso of the running kernel, which is no file: it is copied out
// of this process. Which it is tells its build-id only, so that one must be asked
// for.
type VDSO struct{}

// Place is what reports call the files that Open finds.
func (VDSO) Place() string { return "process" }

// Open opens the vdso if ref is one.
func (VDSO) Open(ref symbol.Ref) (symbol.File, int64, error) {
	if ref.Path != "[vdso]" || ref.BuildID.IsZero() {
		return nil, 0, fmt.Errorf("open %s as a vdso: %w", ref.Path, fs.ErrNotExist)
	}
	image, err := procfs.New("").Self().VDSO()
	if err == nil && image == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open vdso: %w", err)
	}
	return memory{bytes.NewReader(image)}, int64(len(image)), nil
}

// ID is the build-id of the running kernel's vdso, zero if it has none.
func (v VDSO) ID() buildid.ID {
	image, err := procfs.New("").Self().VDSO()
	if err != nil || image == nil {
		return buildid.ID{}
	}
	id, err := buildid.FromFile(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return buildid.ID{}
	}
	return id
}

// memory is a file that is none.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }
