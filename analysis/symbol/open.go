// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gantry-tools/gantry/buildid"
)

// Open opens the binary of a Ref, for what Object does not read of it: the
// first that an opener has and whose build-id is the wanted one. The caller
// closes it.
func (r *Resolver) Open(ref Ref) (File, int64, error) {
	var worst *openError
	for _, o := range r.openers {
		f, size, err := o.Open(ref)
		if err == nil {
			if err = checkID(f, size, ref); err == nil {
				return f, size, nil
			}
			f.Close()
		}
		if e := (&openError{reason: classify(err), err: err}); worst == nil || e.reason > worst.reason {
			worst = e
		}
	}
	if worst == nil {
		worst = &openError{reason: NotFound, err: fs.ErrNotExist}
	}
	return nil, 0, fmt.Errorf("open %s: %w", ref, worst)
}

// checkID refuses a file that has not the build-id of ref, if it has one.
func checkID(f File, size int64, ref Ref) error {
	if ref.BuildID.IsZero() {
		return nil
	}
	err := buildid.Check(f, size, ref.BuildID)
	if errors.Is(err, buildid.ErrMismatch) {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if err != nil {
		return &elfError{err}
	}
	return nil
}
