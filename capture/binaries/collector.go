// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

const (
	defaultMaxBinary   = 256 << 20
	defaultMaxBinaries = 4 << 30
	// maxWaiting bounds the binaries that wait to be copied.
	maxWaiting = 1 << 16
	// maxFiles bounds the files that are known: in a long recording there may
	// be any number.
	maxFiles = 1 << 16
	// collectTimeout is how long Run waits for copies at the end.
	collectTimeout = 10 * time.Second
	// copyTimeout is the deadline of copying one file, and longer for each
	// copyRate bytes by a second.
	copyTimeout = 3 * time.Second
	copyRate    = 16 << 20
)

// Why a binary was not kept.
var (
	errTooLarge     = errors.New("too large")
	errTooMuch      = errors.New("too much for the limit of all binaries")
	errUnfinished   = errors.New("not finished in time")
	errTooManyFiles = errors.New("too many files to remember all")
	errGone         = errors.New("its process had ended")
	errReplaced     = errors.New("replaced before it could be read")
	ErrOnFUSE       = errors.New("on FUSE or a file system that is not known")
)

// binaryKey is one file as the records name it: by build-id and path, and
// without a build-id by all that tells files apart.
type binaryKey struct {
	id string // build-id, "" if there is none
	FileKey
}

// mappedAt is where a binary was seen last: the process, its mount namespace (0:
// not known), which of those with this number, and the mapping.
type mappedAt struct {
	pid        int
	mnt        uint64
	generation uint32
	start, end uint64
	hostRoot   bool // its root directory is the host's
}

// binary is one mapped file.
type binary struct {
	key binaryKey
	mappedAt
	outcome
	// file is what was opened as soon as it was seen: the process may be gone
	// when its turn comes. nil: it has to be looked for.
	file *os.File
	// settled: offering it again changes nothing.
	settled atomic.Bool
	// timedOut: its file system did not answer when its build-id was asked for.
	timedOut atomic.Bool
}

// outcome is what became of a binary.
type outcome struct {
	id   buildid.ID
	host bool // it is the host's file: its path leads to it
	kept bool
	// content is the id that it was kept by.
	content buildid.ID
	err     error
	// debug: its separate symbols are kept as well, if debugErr is nil.
	debug    bool
	debugErr error
}

// Collector copies the binaries of containers into the store while they run,
// because afterwards there may be nothing left of them. Binaries of the host
// stay where they are.
type Collector struct {
	fs      procfs.FS
	store   *buildid.Store // nil: nothing is copied
	access  *procroot.Access
	files   procroot.Files
	timeout time.Duration // of copying one file, before its size is known
	ids     *IDReader
	max     int64
	left    atomic.Int64
	hostMnt uint64
	blind   bool // see Options
	openErr error
	closed  bool

	mu         sync.Mutex
	wake       *sync.Cond
	known      map[binaryKey]*binary
	unknown    int // mappings of files that there was no room for in known
	waiting    []copyJob
	duplicates duplicates
	stop       bool
	done       chan struct{}

	jit *jitCollector
}

// Options are the limits of a Collector.
type Options struct {
	// Store is the directory of the build-id store; "" copies nothing.
	Store string
	// MaxBinary bounds one file and MaxBinaries all of them, in bytes; 0 is 256
	// MiB and 4 GiB. Perf maps and jitdump files are bounded apart: 128 MiB for
	// one, a quarter of MaxBinaries for all.
	MaxBinary, MaxBinaries int64
	// Blind says that the kernel does not tell this user of namespaces. Then what
	// cannot be looked at is taken for the host's.
	Blind bool
}

// New returns a Collector, which copies nothing before Start. The caller closes it.
func New(o *Options, fsys procfs.FS) *Collector {
	k := &Collector{
		fs: fsys, access: new(procroot.Access), timeout: copyTimeout, blind: o.Blind,
		known: make(map[binaryKey]*binary), done: make(chan struct{}),
		max: cmp.Or(o.MaxBinary, defaultMaxBinary),
	}
	k.left.Store(cmp.Or(o.MaxBinaries, defaultMaxBinaries))
	k.ids = NewIDReader(k.access)
	k.wake = sync.NewCond(&k.mu)
	if o.Store != "" {
		k.store, k.openErr = buildid.CreateStore(o.Store)
	}
	k.hostMnt, _ = fsys.Self().Namespace("mnt") // 0: everything counts as a container's
	k.jit = newJITCollector(fsys, k.access, k.store, k.hostMnt, k.left.Load())
	return k
}

// enqueue takes note of a mapped file. It never waits for a copy.
func (k *Collector) enqueue(key *binaryKey, at mappedAt) *binary {
	if k.generated(key, at) {
		k.jit.enqueue(key, at)
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.known[*key]
	if b == nil {
		if len(k.known) >= maxFiles {
			k.unknown++
			return nil
		}
		b = &binary{key: *key}
		b.id, _ = buildid.New([]byte(key.id)) // no id is the zero ID
		k.known[*key] = b
	} else if b.err != errGone {
		if k.needsCompare(b, at) && len(k.waiting) < maxWaiting {
			k.waiting = append(k.waiting, copyJob{b: b, at: at, compare: true, file: k.openEarly(b, at)})
			k.wake.Signal()
		}
		return b
	}
	if len(k.waiting) >= maxWaiting {
		b.err = errGone
		return b
	}
	b.err = nil
	b.mappedAt = at
	b.file = k.openEarly(b, at)
	k.waiting = append(k.waiting, copyJob{b: b, at: at})
	k.wake.Signal()
	return b
}

// maxEarly bounds the binaries that are opened before their turn.
const maxEarly = 64

// openEarly opens a binary of a container that is known not to be served by a
// program, as it has a build-id; nil if it cannot be. k.mu is held.
func (k *Collector) openEarly(b *binary, at mappedAt) *os.File {
	if k.store == nil || b.id.IsZero() || at.mnt == 0 || at.mnt == k.hostMnt || len(k.waiting) >= maxEarly {
		return nil
	}
	f, err := k.ids.OpenMapped(k.fs.Proc(at.pid), at.start, at.end, strings.TrimSuffix(b.key.Path, " (deleted)"))
	if err != nil {
		return nil
	}
	return f
}

// generated reports whether a mapping holds generated code. A jitdump file of the
// host stays where it is, as binaries do.
func (k *Collector) generated(key *binaryKey, at mappedAt) bool {
	return perf.HoldsCode(key.Path) || isJitdump(key) && (at.mnt == 0 || at.mnt != k.hostMnt)
}

// Start copies in the background until wait is called.
func (k *Collector) Start() {
	k.jit.start()
	go k.work()
}

// work copies what waits. Each copy is an operation of its own: one whose file
// system does not answer is abandoned, and the next one begins.
func (k *Collector) work() {
	defer close(k.done)
	for {
		t, ok := k.next()
		if !ok {
			return
		}
		var f outcome
		err := k.access.DoWithin(k.fs.Proc(t.at.pid), k.timeout, func(op *procroot.Op) {
			if t.file != nil {
				defer t.file.Close()
			}
			if t.compare {
				k.compare(op, t)
			} else {
				f = k.collect(op, t)
			}
			op.Commit()
		})
		if errors.Is(err, procroot.ErrNotStarted) {
			t.file.Close() // nil too
		}
		if t.compare {
			continue
		}
		k.mu.Lock()
		if err != nil {
			t.b.outcome = outcome{id: t.b.id, err: procroot.ErrTimeout}
		} else {
			t.b.outcome = f
		}
		t.b.settled.Store(t.b.err != errGone)
		k.mu.Unlock()
	}
}

// next is what to do next; nothing when all is done and wait was called.
func (k *Collector) next() (copyJob, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.waiting) == 0 && !k.stop {
		k.wake.Wait()
	}
	if len(k.waiting) == 0 {
		return copyJob{}, false
	}
	t := k.waiting[0]
	k.waiting = k.waiting[1:]
	if !t.compare {
		t.b.err = errUnfinished
		t.file, t.b.file = t.b.file, nil
	}
	return t, true
}

// Wait lets what waits be copied until a deadline: a file of a container may be
// one that no one ever finishes reading.
func (k *Collector) Wait() {
	k.mu.Lock()
	k.stop = true
	k.wake.Broadcast()
	k.mu.Unlock()
	k.jit.end()
	deadline := time.Now().Add(collectTimeout)
	defer k.jit.wait(deadline)
	await(k.done, deadline)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.waiting {
		t.file.Close() // nil too
		if !t.compare {
			t.b.err = errUnfinished
			t.b.file.Close() // nil too
		}
	}
	k.waiting = nil
}

// copyTime is how long copying a file of so many bytes may take.
func copyTime(size int64) time.Duration {
	return copyTimeout + time.Duration(size)*time.Second/copyRate
}

// await waits until done is closed, or the deadline.
func await(done <-chan struct{}, deadline time.Time) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// collect decides what to do with a binary and does it.
func (k *Collector) collect(op *procroot.Op, t copyJob) outcome {
	b := t.b
	f := outcome{id: b.id}
	proc := k.fs.Proc(t.at.pid)
	path, deleted := strings.CutSuffix(b.key.Path, " (deleted)")
	host, err := k.onHost(proc, t.at.mnt)
	if t.file != nil && procfs.Gone(err) {
		err = nil // it was in a container
	}
	f.host = host && !deleted && path != "/" // see isFile
	t.at.hostRoot = host
	switch {
	case err != nil:
		f.err = gone(err)
		return f
	case f.id.IsZero() && (f.host || k.store != nil) && k.files.OnFUSE(proc, b.key.Major, b.key.Minor, b.key.Path):
		f.err = ErrOnFUSE
		return f
	case f.host:
		return f
	case k.store == nil:
		f.err = k.openErr
		return f
	}
	file := t.file
	if file == nil {
		if file, err = k.files.Root(proc, op).OpenMapped(t.at.start, t.at.end, path); err != nil {
			f.err = gone(err)
			return f
		}
		defer file.Close()
	}
	info, err := file.Stat()
	if err != nil {
		f.err = err
		return f
	}
	op.Extend(copyTime(info.Size()))
	if f.content, f.err = k.copy(file, info, b, t.at); f.err == nil {
		f.kept = true
		k.collectDebug(op, &f, proc, file, path)
	}
	return f
}

// onHost reports whether a process sees the file system as this one does. For
// one that has ended the sideband's word on its mount namespace counts, and that
// word is never overruled to make a container's file the host's: the number may be
// another process's by now.
func (k *Collector) onHost(proc procfs.Proc, mnt uint64) (bool, error) {
	now, err := proc.Namespace("mnt")
	if err == nil {
		var root string
		if root, err = proc.RootLink(); err == nil {
			return now == k.hostMnt && root == "/" && (mnt == 0 || mnt == now), nil
		}
	}
	if mnt == k.hostMnt && mnt != 0 || mnt == 0 && k.blind && procfs.Gone(err) {
		return true, nil
	}
	return false, err
}

func gone(err error) error {
	if procfs.Gone(err) {
		return errGone
	}
	return err
}

// copy puts a container's file into the store, by its content: no more of it than
// info says, of which the limits are asked, though it may grow meanwhile. What a
// container brings answers for no other, nor for the host, whatever build-id it
// claims; which content was mapped where, the recording says.
func (k *Collector) copy(file *os.File, info fs.FileInfo, b *binary, at mappedAt) (content buildid.ID, err error) {
	s := verifiedFile{b.id, stampOf(info)}
	k.mu.Lock()
	content, known := k.duplicates.verified[s]
	k.mu.Unlock()
	switch {
	case known:
		k.mappedAs(b, at, content)
		return content, nil
	case info.Size() > k.max:
		return content, errTooLarge
	case info.Size() > k.left.Load():
		return content, errTooMuch
	}
	if st, ok := info.Sys().(*syscall.Stat_t); b.id.IsZero() && (!ok || st.Ino != b.key.Inode) {
		return content, errReplaced
	}
	content, added, err := k.store.AddContainer(file, info.Size(), buildid.Source{Path: b.key.Path, Want: b.id})
	if err != nil {
		return content, err
	}
	if added {
		k.left.Add(-info.Size())
	}
	if after, err := file.Stat(); err == nil && stampOf(after) == s.fileStamp { // nobody wrote to it meanwhile
		k.verified(s, content)
	}
	k.mappedAs(b, at, content)
	return content, nil
}

// Summary is what became of the files that were mapped.
type Summary struct {
	// Host are files of the host, Kept are copies in the store.
	Host int `json:"host"`
	Kept int `json:"kept"`
	// Debug are the files of separate symbols that were kept beside them.
	Debug int `json:"debug,omitempty"`
	// Code are the perf maps and jitdump files of processes that were kept.
	Code int `json:"code,omitempty"`
	// Missing counts the files of containers that could not be kept, and those
	// of the host that were not looked at, by reason.
	Missing map[string]int `json:"missing,omitempty"`
}

func (b *Summary) miss(reason string) { b.missed(reason, b.Missing[reason]+1) }

// missed says that n files are missing for a reason.
func (b *Summary) missed(reason string, n int) {
	if b.Missing == nil {
		b.Missing = make(map[string]int)
	}
	b.Missing[reason] = n
}

// SetAtLeast raises the count of a reason to n: a snapshot knows of files too.
func (b *Summary) SetAtLeast(reason error, n int) {
	if n > b.Missing[reason.Error()] {
		b.missed(reason.Error(), n)
	}
}

// Result sums up. It returns the files with a build-id in the order of path, and the perf maps.
func (k *Collector) Result() (Summary, []perfdata.BuildIDEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var sum Summary
	var list []*binary
	if k.unknown > 0 {
		sum.Missing = map[string]int{errTooManyFiles.Error(): k.unknown}
	}
	k.jit.sumUp(&sum)
	for _, b := range k.known {
		if b.debug {
			sum.Debug++
		} else if b.debugErr != nil {
			sum.miss("symbols: " + reason(b.debugErr))
		}
		switch {
		case b.err != nil:
			sum.miss(reason(b.err))
		case b.kept:
			sum.Kept++
		case b.timedOut.Load():
			sum.miss(procroot.ErrTimeout.Error())
		case b.host:
			sum.Host++
		}
		if !b.id.IsZero() {
			// A copy: a worker that was given up may still write to b.
			list = append(list, &binary{key: b.key, outcome: b.outcome})
		}
	}
	slices.SortFunc(list, func(a, b *binary) int {
		return cmp.Or(strings.Compare(a.key.Path, b.key.Path), strings.Compare(a.id.String(), b.id.String()))
	})
	return sum, append(buildIDs(list), k.jit.buildIDs()...)
}

// buildIDs are the files in the form in which perf.data has them.
func buildIDs(list []*binary) []perfdata.BuildIDEntry {
	var out []perfdata.BuildIDEntry
	for _, b := range list {
		path := strings.TrimSuffix(b.key.Path, " (deleted)")
		if b.id.Len() <= 20 {
			out = append(out, perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscUser, ID: b.id.Bytes(), Path: path})
		}
	}
	return out
}

// Contents are the files without a build-id that were kept by their content.
func (k *Collector) Contents() buildid.MappedFiles {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list buildid.MappedFiles
	for key, b := range k.known {
		if !b.content.IsZero() && b.id.IsZero() {
			list = append(list, buildid.Mapped{ID: b.content, Path: key.Path, Major: key.Major, Minor: key.Minor,
				Inode: key.Inode, Gen: key.Gen, MountNS: key.Mnt})
		}
	}
	list = append(append(list, k.duplicates.list...), k.jit.mappedFiles()...)
	slices.SortFunc(list, func(a, b buildid.Mapped) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Inode, b.Inode), cmp.Compare(a.MountNS, b.MountNS),
			cmp.Compare(a.Gen, b.Gen), cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	return list[:min(len(list), buildid.MaxMapped)]
}

// reason is an error without what is particular to one file.
func reason(err error) string {
	for _, known := range []error{errTooLarge, errTooMuch, errUnfinished, errGone, errTooManyFiles, errReplaced,
		ErrOnFUSE, errNotJIT, errShared, errOlder, procroot.ErrTimeout, procroot.ErrPseudoFile, sys.ErrNotRegular,
		buildid.ErrMismatch,
		buildid.ErrNotELF} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return "unreadable"
}
