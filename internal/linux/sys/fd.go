// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// FD owns a file descriptor. Its methods may be called from several
// goroutines, but closing it while another one is inside a system call on it
// is the owner's mistake: the number may be reused by then.
//
// A nil *FD is valid where a descriptor is optional and stands for "none".
type FD struct {
	raw atomic.Int64
}

// NewFD takes ownership of a descriptor number. The descriptor is set
// close-on-exec. A negative number is an error.
func NewFD(raw int) (*FD, error) {
	if raw < 0 {
		return nil, fmt.Errorf("own file descriptor %d: %w", raw, unix.EBADF)
	}
	unix.CloseOnExec(raw)
	return own(raw), nil
}

// own is NewFD for a descriptor that a system call just returned.
func own(raw int) *FD {
	f := new(FD)
	f.raw.Store(int64(raw))
	return f
}

// Int is the descriptor's number, or -1 after Close or Disown, or for nil.
func (f *FD) Int() int {
	if f == nil {
		return -1
	}
	return int(f.raw.Load())
}

func (f *FD) String() string { return strconv.Itoa(f.Int()) }

// Close closes the descriptor. Closing nil or closing twice does nothing.
func (f *FD) Close() error {
	raw := f.Disown()
	if raw < 0 {
		return nil
	}
	// After EINTR Linux has closed the descriptor all the same.
	if err := unix.Close(raw); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// Disown gives the number to the caller, who closes it from now on. It is -1
// if the FD is nil, closed or disowned.
func (f *FD) Disown() int {
	if f == nil {
		return -1
	}
	return int(f.raw.Swap(-1))
}

// Dup returns a second, close-on-exec descriptor of the same open file.
func (f *FD) Dup() (*FD, error) {
	raw, err := unix.FcntlInt(uintptr(f.Int()), unix.F_DUPFD_CLOEXEC, 0)
	runtime.KeepAlive(f)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return own(raw), nil
}

// File moves the descriptor into an *os.File; the FD is empty afterwards.
func (f *FD) File(name string) *os.File {
	return os.NewFile(uintptr(f.Disown()), name)
}

// DupFile is a second, close-on-exec descriptor of an *os.File's open file.
func DupFile(file *os.File) (*FD, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd *FD
	if e := conn.Control(func(raw uintptr) {
		var n int
		if n, err = unix.FcntlInt(raw, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			fd = own(n)
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return fd, nil
}

// Path is the name under which this process can open the descriptor's file
// again: a directory so named reaches a detached mount. It is valid as long
// as the FD is open.
func (f *FD) Path() string { return "/proc/self/fd/" + f.String() }

// Read reads into b; 0 bytes without error is the end of the file.
func (f *FD) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(f.Int(), b)
		runtime.KeepAlive(f)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read: %w", err)
		}
		return n, nil
	}
}

// Rewind sets the place at which a file is read to its start.
func (f *FD) Rewind() error {
	_, err := unix.Seek(f.Int(), 0, io.SeekStart)
	runtime.KeepAlive(f)
	if err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	return nil
}

// Open opens path with O_CLOEXEC added to flags (O_RDONLY, O_PATH,
// O_DIRECTORY).
func Open(path string, flags int) (*FD, error) {
	for {
		raw, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return own(raw), nil
	}
}

// Flags for Open, OpenAt and OpenInRoot beside those of package os.
const (
	OPath      = unix.O_PATH
	ODirectory = unix.O_DIRECTORY
	ONofollow  = unix.O_NOFOLLOW
)

// OpenAt opens path below the directory dir, following symbolic links as the
// kernel does: use OpenInRoot for a directory that is not ours.
func OpenAt(dir *FD, path string, flags int) (*FD, error) {
	for {
		raw, err := unix.Openat(dir.Int(), path, flags|unix.O_CLOEXEC, 0)
		runtime.KeepAlive(dir)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "openat", Path: path, Err: err}
		}
		return own(raw), nil
	}
}

// OpenInRoot opens path as a process with the root directory root would:
// absolute links and ".." stay below root and magic links are refused, so
// that a container's file system cannot lead the reader out of it. It needs
// openat2 (Linux 5.6); without it the error is ENOSYS. EAGAIN is a path that is
// renamed all the time, or a file that somebody has leased.
func OpenInRoot(root *FD, path string, flags int) (*FD, error) {
	return openInRoot(root, path, flags, 0)
}

// OpenInMount is OpenInRoot of what is on the same mount as root: a path that
// leads to another one, whose file system a program may serve, is EXDEV.
func OpenInMount(root *FD, path string, flags int) (*FD, error) {
	return openInRoot(root, path, flags, unix.RESOLVE_NO_XDEV)
}

// FindCached is OpenInRoot with OPath of what the kernel has in memory, so that it
// waits for no disk, no server and no program (RESOLVE_CACHED of openat2, Linux
// 5.12). EAGAIN says nothing about the path but that the kernel would have to ask
// a file system for it, or that the kernel is too old.
func FindCached(root *FD, path string) (*FD, error) {
	fd, err := openInRoot(root, path, OPath, resolveCached)
	if errors.Is(err, unix.EINVAL) {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: unix.EAGAIN}
	}
	return fd, err
}

// resolveCached is RESOLVE_CACHED of linux/openat2.h.
const resolveCached = 0x20

func openInRoot(root *FD, path string, flags int, resolve uint64) (*FD, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	for try := 0; ; try++ {
		raw, err := unix.Openat2(root.Int(), path, &how)
		runtime.KeepAlive(root)
		// EAGAIN: a rename raced with the walk; the kernel asks to retry.
		// Who owns the path can keep that up for ever.
		again := errors.Is(err, unix.EAGAIN) && resolve&resolveCached == 0 && try < maxTries
		if errors.Is(err, unix.EINTR) || again {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
		}
		return own(raw), nil
	}
}

// maxTries bounds how often OpenInRoot starts again.
const maxTries = 8

// ErrNotRegular is a device, a pipe, a directory or a socket where a regular
// file was expected.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens for reading what fd, an OPath descriptor, stands for, if it
// is a regular file: a device would act on being opened, and a pipe or a leased
// file would wait. It needs /proc. fd stays the caller's.
func OpenRegular(fd *FD) (*FD, error) {
	st, err := fd.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, ErrNotRegular
	}
	file, err := Open(fmt.Sprintf("/proc/self/fd/%d", fd.Int()), os.O_RDONLY|unix.O_NONBLOCK)
	runtime.KeepAlive(fd)
	return file, err
}

// Stat is some of what the kernel knows of a file.
type Stat struct {
	Device, Inode, Size uint64
	// Mode is the type of the file and its permissions (S_IF* of linux/stat.h).
	Mode uint32
	// The time of the last change, of content or attributes.
	CtimeSec, CtimeNsec int64
	// Mount is the mount that the file is on, as in /proc/PID/mountinfo. 0: the
	// kernel does not tell (before Linux 5.8), or was not asked.
	Mount uint64
}

// IsDir and IsLink are what the mode says.
func (s *Stat) IsDir() bool  { return s.Mode&unix.S_IFMT == unix.S_IFDIR }
func (s *Stat) IsLink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

// Stat asks for the descriptor's file; OPath descriptors do. It is what this
// kernel knows: no server, and no program that serves a file system, is asked.
func (f *FD) Stat() (Stat, error) {
	const (
		flags = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC
		mask  = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
	)
	var x unix.Statx_t
	err := unix.Statx(f.Int(), "", flags, mask, &x)
	runtime.KeepAlive(f)
	if err != nil {
		return Stat{}, fmt.Errorf("statx: %w", err)
	}
	st := Stat{
		Device: unix.Mkdev(x.Dev_major, x.Dev_minor), Inode: x.Ino, Size: x.Size, Mode: uint32(x.Mode),
		CtimeSec: x.Ctime.Sec, CtimeNsec: int64(x.Ctime.Nsec),
	}
	if x.Mask&unix.STATX_MNT_ID != 0 {
		st.Mount = x.Mnt_id
	}
	return st, nil
}

// DeviceNumbers are the parts of a device number.
func DeviceNumbers(dev uint64) (major, minor uint32) { return unix.Major(dev), unix.Minor(dev) }

// Readlink reads the text of the symbolic link that an OPath descriptor stands
// for.
func (f *FD) Readlink() (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := ReadlinkAt(f, "", buf)
	return string(buf[:n]), err
}

// ReadlinkAt reads the text of the symbolic link name below dir into buf and
// returns its length; a text that does not fit is cut.
func ReadlinkAt(dir *FD, name string, buf []byte) (int, error) {
	n, err := unix.Readlinkat(dir.Int(), name, buf)
	runtime.KeepAlive(dir)
	if err != nil {
		return 0, &os.PathError{Op: "readlinkat", Path: name, Err: err}
	}
	return n, nil
}

// Target is what the descriptor is of, as /proc/self/fd tells: a path, or such as
// "anon_inode:[perf_event]".
func (f *FD) Target() (string, error) {
	link, err := os.Readlink(f.Path())
	runtime.KeepAlive(f)
	return link, err
}
