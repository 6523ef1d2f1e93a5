// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/gantry-tools/gantry/analysis/symbol/dwarfline"
	"github.com/gantry-tools/gantry/buildid"
)

// ErrMismatch is returned for a file that is not the one of the recording.
var ErrMismatch = errors.New("the file is another one than at the time of the recording")

// Ref says which binary is meant: by its content if BuildID is known, else by
// where it was.
type Ref struct {
	BuildID buildid.ID
	Path    string // as the process saw it
	Inode   uint64 // the file's, zero if not known; counts only without a BuildID

	// MountNS is the inode number of the mount namespace that Path belongs to,
	// zero for the host's. PID is a process in it, for openers that go through
	// its root; it does not count for what is the same file.
	MountNS uint64
	PID     int32

	// Unchanged is a time, in nanoseconds since 1970, from which on the file must
	// not have changed; of a perf map, one from which on it must have been written
	// to. 0 is not known. It counts only without a BuildID.
	Unchanged int64
}

// File is an open binary.
type File interface {
	io.ReaderAt
	io.Closer
}

// Opener opens binaries. It returns an error that is fs.ErrNotExist if it has
// nothing for the Ref, and ErrMismatch if what it has is another file.
type Opener interface {
	Open(ref Ref) (f File, size int64, err error)
}

// Named is an Opener that has a name for the place that it opens files in.
type Named interface {
	Opener
	Place() string
}

// sourceName is the name of the place that o opens files in, "" if it has none.
func sourceName(o Opener) string {
	if o, ok := o.(Named); ok {
		return o.Place()
	}
	return ""
}

// Reason classifies why a binary could not be read.
type Reason uint8

// Reasons, from the least to the most telling: if several openers fail for one
// binary, the last in this list is given.
const (
	NotFound   Reason = iota // no opener has it
	Unreadable               // permission, I/O error
	Malformed                // an ELF file with contradictions
	NotELF
	Truncated
	Mismatch // the wanted build-id is not the file's
)

// String is the reason in words.
func (r Reason) String() string {
	switch r {
	case NotFound:
		return "not found"
	case Unreadable:
		return "not readable"
	case Malformed:
		return "malformed ELF file"
	case NotELF:
		return "not an ELF file"
	case Truncated:
		return "truncated"
	case Mismatch:
		return "other build-id"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Failure tells why there are no symbols for a binary.
type Failure struct {
	Ref    Ref
	Reason Reason
	Err    error
}

// Resolver finds the binaries of a recording and remembers them, and those that
// it could not find as well. Several goroutines may use it.
type Resolver struct {
	openers []Opener
	cache   Cache // nil is none

	mu      sync.Mutex
	objects map[Ref]*result // by key
	order   []*result       // failures are reported in the order of first use
	found   map[Ref]Ref     // where one was found, by Shared
	scratch scratch         // of ObjectAt
	loaded  int64           // bytes of DWARF
	lines   map[Ref]*Lines  // by key
}

type result struct {
	once sync.Once
	ref  Ref
	obj  *Object
	err  error
}

// NewResolver makes a Resolver that asks the openers in their order, until one
// has the right file.
func NewResolver(openers ...Opener) *Resolver {
	return &Resolver{openers: slices.Clone(openers), objects: make(map[Ref]*result), found: make(map[Ref]Ref)}
}

// A Cache keeps what is made of files with some effort: lines and inlined calls.
type Cache = dwarfline.Cache

// UseCache makes r use a cache from now on.
func (r *Resolver) UseCache(c Cache) { r.cache = c }

// key reduces a Ref to what decides which file is meant. A file found by its
// build-id is the same wherever it was; one that is not found by it at one path
// may be found at another, so paths count.
func (ref Ref) key() Ref {
	ref.PID = 0
	if !ref.BuildID.IsZero() {
		ref.Inode, ref.Unchanged = 0, 0
	}
	return ref
}

// Shared is the Ref of all files that are what this one is: those with the same
// content. A build-id does not tell that: programs that differ in the names of their
// functions only have the same, and a container says what it likes. With the path, in
// one mount namespace, it does.
func (ref Ref) Shared() Ref {
	if ref.BuildID.Kind() == buildid.KindContent {
		return Ref{BuildID: ref.BuildID}
	}
	return Ref{BuildID: ref.BuildID, MountNS: ref.MountNS, Path: ref.Path}
}

// anyOfHost stands for a file of the host with a build-id.
func (ref Ref) anyOfHost() Ref { return Ref{BuildID: ref.BuildID} }

// Object returns the binary of a Ref. An error is remembered: asking again costs
// a map lookup.
func (r *Resolver) Object(ref Ref) (*Object, error) {
	if o := r.byBuildID(ref); o != nil {
		return o, nil
	}
	res := r.result(ref)
	res.once.Do(func() {
		obj, err := r.load(ref, &loader{debug: r.debugOf(ref)})
		r.mu.Lock()
		defer r.mu.Unlock()
		res.obj, res.err = obj, err
		if obj != nil && !ref.BuildID.IsZero() {
			r.objects[ref.Shared()] = res
			r.keep(ref)
			if ref.MountNS == 0 {
				r.objects[ref.anyOfHost()] = res
			}
		}
	})
	return r.orOfHost(ref, res)
}

// keep remembers where the file of ref was found. r.mu is held.
func (r *Resolver) keep(ref Ref) {
	r.found[ref.Shared()] = ref
	if ref.MountNS == 0 {
		r.found[ref.anyOfHost()] = ref
	}
}

// orOfHost is the result, or where it is an error a file of the host with the same
// build-id, which may answer for a container and for what is gone.
func (r *Resolver) orOfHost(ref Ref, res *result) (*Object, error) {
	if res.err != nil {
		if o := r.byBuildID(ref.anyOfHost()); o != nil {
			return o, nil
		}
	}
	return res.obj, res.err
}

// ObjectAt is like Object for who looks up these offsets in the file only: the
// object has the symbols that they lie in, and is made with a part of the work.
// Such objects are not remembered; errors are.
func (r *Resolver) ObjectAt(ref Ref, offsets []uint64) (*Object, error) {
	if o := r.byBuildID(ref); o != nil {
		return o, nil
	}
	r.mu.Lock()
	mem := r.scratch
	r.scratch = scratch{} // whoever comes meanwhile takes fresh memory
	r.mu.Unlock()
	obj, err := r.load(ref, &loader{debug: r.debugOf(ref), offsets: offsets, scratch: &mem})
	if err != nil {
		res := r.result(ref)
		res.once.Do(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			res.err = err
		})
		return r.orOfHost(ref, res)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scratch = mem
	r.keep(ref)
	return obj, nil
}

// foundAs is the Ref by which the file of ref was found, which may have been at
// another path. The caller holds the lock.
func (r *Resolver) foundAs(ref Ref) (Ref, bool) {
	if ref.BuildID.IsZero() {
		return Ref{}, false
	}
	at, ok := r.found[ref.Shared()]
	if !ok {
		at, ok = r.found[ref.anyOfHost()] // which may answer for what is gone
	}
	return at, ok
}

// result is what is known of a Ref. One that was not asked for before is made.
func (r *Resolver) result(ref Ref) *result {
	key := ref.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.objects[key]
	if res == nil {
		res = &result{ref: ref}
		r.objects[key] = res
		r.order = append(r.order, res)
	}
	return res
}

func (r *Resolver) byBuildID(ref Ref) *Object {
	if ref.BuildID.IsZero() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if res := r.objects[ref.Shared()]; res != nil && res.obj != nil {
		return res.obj // nil if a Ref without a path was asked for and not found
	}
	return nil
}

func (r *Resolver) load(ref Ref, l *loader) (*Object, error) {
	var worst *openError
	for _, o := range r.openers {
		obj, err := open(o, ref, l)
		if err == nil {
			return obj, nil
		}
		e := &openError{reason: classify(err), err: err}
		if worst == nil || e.reason > worst.reason {
			worst = e
		}
	}
	if worst == nil {
		worst = &openError{reason: NotFound, err: fs.ErrNotExist}
	}
	return nil, fmt.Errorf("symbols of %s: %w", ref, worst)
}

// open reads the binary that one opener has for ref, if it is the right one.
func open(o Opener, ref Ref, l *loader) (*Object, error) {
	f, size, err := o.Open(ref)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	obj, err := l.read(f, size)
	if err != nil {
		return nil, &elfError{err}
	}
	if !ref.BuildID.IsZero() && !ref.BuildID.Matches(obj.BuildID) && checkID(f, size, ref) != nil {
		return nil, fmt.Errorf("%w: its build-id is %q", ErrMismatch, obj.BuildID)
	}
	obj.Place = sourceName(o)
	return obj, nil
}

// String is how messages call the binary.
func (ref Ref) String() string {
	var b strings.Builder
	b.WriteString(ref.Path)
	if !ref.BuildID.IsZero() {
		fmt.Fprintf(&b, " (build-id %s)", ref.BuildID)
	}
	return strings.TrimSpace(b.String())
}

// elfError marks an error in the content of a file.
type elfError struct{ error }

func (e *elfError) Unwrap() error { return e.error }

type openError struct {
	reason Reason
	err    error
}

func (e *openError) Error() string { return e.err.Error() }
func (e *openError) Unwrap() error { return e.err }

func classify(err error) Reason {
	var malformed *elfError
	switch {
	case errors.Is(err, ErrMismatch):
		return Mismatch
	case errors.Is(err, ErrNotELF):
		return NotELF
	case errors.Is(err, ErrTruncated):
		return Truncated
	case errors.As(err, &malformed):
		return Malformed
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	}
	return Unreadable
}

// ReasonOf classifies an error of a Resolver.
func ReasonOf(err error) Reason {
	var e *openError
	if errors.As(err, &e) {
		return e.reason
	}
	return NotFound
}

// Failures lists the binaries that were asked for and could not be read, in the
// order of the first question. One that another path had is not among them.
func (r *Resolver) Failures() []Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Failure
	for _, res := range r.order {
		if res.err == nil {
			continue
		}
		if _, elsewhere := r.foundAs(res.ref); elsewhere {
			continue
		}
		list = append(list, Failure{Ref: res.ref, Reason: ReasonOf(res.err), Err: res.err})
	}
	return list
}
