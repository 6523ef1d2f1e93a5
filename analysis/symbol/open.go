// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gantry-tools/gantry/buildid"
)

// Open opens the binary of a Ref, for what Object does not read of it: the
// first that an opener has and whose build-id is the wanted one, be it where
// another Ref led to it. The caller closes it.
func (r *Resolver) Open(ref Ref) (File, int64, error) {
	f, size, err := r.openAt(ref)
	if err == nil {
		return f, size, nil
	}
	r.mu.Lock()
	at, ok := r.foundAs(ref)
	r.mu.Unlock()
	if ok && at != ref {
		if f, size, err := r.openAt(at); err == nil {
			return f, size, nil
		}
	}
	return nil, 0, err
}

func (r *Resolver) openAt(ref Ref) (File, int64, error) {
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

// OpenDebug opens the separate symbols of the binary with the build-id of a Ref.
// The caller closes them.
func (r *Resolver) OpenDebug(ref Ref) (File, int64, error) {
	for _, o := range r.openers {
		o, ok := o.(DebugOpener)
		if !ok {
			continue
		}
		f, size, err := o.OpenDebug(ref)
		if err != nil {
			continue
		}
		if checkID(f, size, ref) == nil {
			return f, size, nil
		}
		f.Close()
	}
	return nil, 0, fmt.Errorf("open symbols of %s: %w", ref, fs.ErrNotExist)
}

// OpenBeside opens the file at a path of the mount namespace and root that a
// Ref is of. It may be any file. The caller closes it. A root counts only if it
// has the binary of the Ref itself: the path may come out of a container, the
// number of its process may be another's by now, and a recording may be of
// another machine.
func (r *Resolver) OpenBeside(ref Ref, path string) (File, int64, error) {
	for _, o := range r.openers {
		l, ok := o.(LinkOpener)
		if !ok || !has(o, ref) {
			continue
		}
		if f, size, err := l.OpenLink(ref, path); err == nil {
			return f, size, nil
		}
	}
	return nil, 0, fmt.Errorf("open %s beside %s: %w", path, ref, fs.ErrNotExist)
}

// has reports whether an opener has the binary of ref.
func has(o Opener, ref Ref) bool {
	f, size, err := o.Open(ref)
	if err != nil {
		return false
	}
	defer f.Close()
	return checkID(f, size, ref) == nil
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
