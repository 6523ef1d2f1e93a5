// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
)

// FUSE is a file system that the test serves: a directory with at most one file.
// It answers until Silence is called; from then on it reads what it is asked and
// never answers, as a server that hangs does.
type FUSE struct {
	dev    *os.File
	text   []byte // of the file
	silent atomic.Bool
	asked  atomic.Int64
}

// FUSEFile is what the file is called.
const FUSEFile = "program"

// MountFUSE mounts one at a directory, for everybody to see, in the mount
// namespace of a process, or in this one's if pid is 0. text is the file's; nil:
// there is none. It needs root. What is on it is not to be executed by os/exec
// directly, which stops this process until the server has answered. It is gone when the test ends, and whoever waits
// for it gets an error then.
func MountFUSE(t testing.TB, pid int, at string, text []byte) *FUSE {
	t.Helper()
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		Lacks(t, "open /dev/fuse: %v", err)
	}
	f := &FUSE{text: text}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	mount := func() error {
		return syscall.Mount("gantry-test", at, "fuse", syscall.MS_NOSUID|syscall.MS_NODEV, options)
	}
	if pid != 0 {
		err = inMountNamespace(pid, mount)
	} else if err = mount(); err == nil {
		t.Cleanup(func() { syscall.Unmount(at, syscall.MNT_FORCE|syscall.MNT_DETACH) })
	}
	if err != nil {
		syscall.Close(fd)
		t.Fatalf("mount FUSE at %s: %v", at, err)
	}
	// Not before: Go's poller waits in vain for a device that was not mounted.
	f.dev = os.NewFile(uintptr(fd), "/dev/fuse")
	done := make(chan struct{})
	go func() { defer close(done); f.serve() }()
	t.Cleanup(func() { f.Abort(); <-done })
	return f
}

// inMountNamespace calls fn in a thread that ends with it.
func inMountNamespace(pid int, fn func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() {
			// /proc/self is about this thread, and it never ends: another one.
			defer runtime.UnlockOSThread()
			done <- inMountNamespace(pid, fn)
			return
		}
		// Never unlocked: the thread is not for others.
		err := syscall.Unshare(syscall.CLONE_FS)
		if err == nil {
			if _, _, errno := syscall.RawSyscall(sysSetns, ns.Fd(), syscall.CLONE_NEWNS, 0); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// Silence ends all answers.
func (f *FUSE) Silence() { f.silent.Store(true) }

// Asked is what threads of this process have asked since Silence.
func (f *FUSE) Asked() int { return int(f.asked.Load()) }

// Abort gives an error to all who wait.
func (f *FUSE) Abort() { f.dev.Close() }

// Operations (enum fuse_opcode of linux/fuse.h).
const (
	fuseLookup, fuseForget, fuseGetattr, fuseOpen, fuseRead = 1, 2, 3, 14, 15
	fuseRelease, fuseFlush, fuseInit                        = 18, 25, 26
	fuseInterrupt, fuseBatchForget                          = 36, 42
	// fuseInSize is struct fuse_in_header.
	fuseInSize = 40
	// fuseBuffer is more than a request has, FUSE_MIN_READ_BUFFER.
	fuseBuffer = 256 << 10
)

func (f *FUSE) serve() {
	b := make([]byte, fuseBuffer)
	for {
		n, err := f.dev.Read(b)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EINTR) {
			continue // who asked is gone
		}
		if err != nil || n < fuseInSize {
			return
		}
		le := binary.NativeEndian
		op, node, tid := le.Uint32(b[4:]), le.Uint64(b[16:]), le.Uint32(b[32:])
		switch {
		case op == fuseForget || op == fuseBatchForget || op == fuseInterrupt:
			continue // have no answer
		case !f.silent.Load() || op == fuseRelease:
		default:
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err == nil {
				f.asked.Add(1)
			}
			continue
		}
		body, errno := f.answer(op, node, b[fuseInSize:n])
		out := le.AppendUint32(nil, uint32(16+len(body)))
		out = le.AppendUint32(out, uint32(-int32(errno)))
		out = le.AppendUint64(out, le.Uint64(b[8:])) // which request
		if _, err := f.dev.Write(append(out, body...)); err != nil && !errors.Is(err, syscall.ENOENT) {
			return
		}
	}
}

// answer is the body of the answer to a request.
func (f *FUSE) answer(op uint32, node uint64, in []byte) ([]byte, syscall.Errno) {
	le := binary.NativeEndian
	const long = 1 << 20 // seconds that the kernel may remember
	switch {
	case op == fuseInit: // struct fuse_init_out
		out := make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[8:], 128<<10)
		le.PutUint32(out[12:], 1) // FUSE_ASYNC_READ
		le.PutUint32(out[20:], 128<<10)
		return out, 0
	case op == fuseLookup && f.text != nil && string(in) == FUSEFile+"\x00": // struct fuse_entry_out
		out := make([]byte, 40)
		le.PutUint64(out, 2)
		le.PutUint64(out[16:], long)
		le.PutUint64(out[24:], long)
		return append(out, f.attributes(2)...), 0
	case op == fuseLookup:
		return nil, syscall.ENOENT
	case op == fuseGetattr: // struct fuse_attr_out
		return append(le.AppendUint64(le.AppendUint64(nil, long), 0)[:16], f.attributes(node)...), 0
	case op == fuseOpen: // struct fuse_open_out
		out := make([]byte, 16)
		if le.Uint32(in)&syscall.O_SYNC == syscall.O_SYNC {
			out[8] = 1 // FOPEN_DIRECT_IO
		}
		return out, 0
	case op == fuseRead: // struct fuse_read_in
		off := min(le.Uint64(in[8:]), uint64(len(f.text)))
		return f.text[off:min(off+uint64(le.Uint32(in[16:])), uint64(len(f.text)))], 0
	case op == fuseRelease || op == fuseFlush:
		return nil, 0
	}
	return nil, syscall.ENOSYS
}

// attributes are a struct fuse_attr.
func (f *FUSE) attributes(node uint64) []byte {
	le := binary.NativeEndian
	out := make([]byte, 88)
	le.PutUint64(out, node)
	mode := uint32(syscall.S_IFDIR | 0o755)
	if node == 2 {
		mode = syscall.S_IFREG | 0o755
		le.PutUint64(out[8:], uint64(len(f.text)))
	}
	le.PutUint32(out[60:], mode)
	le.PutUint32(out[64:], 1)
	return out
}
