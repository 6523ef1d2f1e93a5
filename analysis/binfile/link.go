// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"fmt"
	"io/fs"

	"github.com/gantry-tools/gantry/analysis/symbol"
)

var (
	_ symbol.LinkOpener = (*Root)(nil)
	_ symbol.LinkOpener = (*Processes)(nil)
)

// OpenLink opens a file by its path below the directory, for a binary of the
// same mount namespace.
func (r *Root) OpenLink(ref symbol.Ref, path string) (symbol.File, int64, error) {
	if ref.MountNS != r.mountNS {
		return nil, 0, fmt.Errorf("open %s of another mount namespace: %w", path, fs.ErrNotExist)
	}
	return open(r.root, symbol.Ref{Path: path})
}

// OpenLink opens a file by its path below the root of the process of ref.
func (p *Processes) OpenLink(ref symbol.Ref, path string) (symbol.File, int64, error) {
	root, err := p.root(ref.PID)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	return open(root, symbol.Ref{Path: path})
}
