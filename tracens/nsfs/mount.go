// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/events"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// FS is a mounted file system.
type FS struct {
	registry *tracens.Registry
	events   *events.System
	dirs     *directory
	rings    *ringSystem
	dir      string
	state    string // where namespaces are kept; "": nowhere
	log      *log.Logger
	server   *fuse.Server
	access   procroot.Access
	handles  handles
	looks    looks
	clock    *ring.Clock // of rings

	// noPassthrough says why rings cannot be files, nil if they can.
	noPassthrough error
	ended         chan struct{} // closed when the file system is gone
	end           sync.Once
	readers       sync.WaitGroup
	serving       sync.WaitGroup
}

// Options of Mount.
type Options struct {
	// Systems are registered behind the user events and the directory itself: those that
	// the function makes, which gets the events of a namespace.
	Systems func(events func(*tracens.Namespace) *events.Set) []tracens.System
	// State is a directory that keeps the namespaces and their options for the next server;
	// "" keeps none.
	State string
	// NoPassthrough is as on a kernel that has no FUSE passthrough.
	NoPassthrough bool
	// Log is told of what the kernel says that it should not.
	Log *log.Logger
}

// Mount mounts the file system at a directory, which is made if it is not there. EBUSY says
// that another server has it mounted. Where a server was that has ended, its mount is taken
// away, and with a State its namespaces' mounts in containers are replaced (Linux 5.12).
func Mount(dir string, o *Options) (*FS, error) {
	f := &FS{registry: tracens.NewRegistry(), dirs: new(directory), dir: dir, state: o.State,
		ended: make(chan struct{}), log: o.Log,
		clock: newClock()}
	if f.log == nil {
		f.log = log.New(io.Discard, "", 0)
	}
	f.events, f.rings = &events.System{Heirs: f.heirs}, &ringSystem{f}
	systems := []tracens.System{f.dirs, f.events, f.rings}
	if o.Systems != nil {
		systems = append(systems, o.Systems(f.events.Of)...)
	}
	for _, s := range systems {
		if err := f.registry.Register(s); err != nil {
			return nil, err
		}
	}
	dead, err := f.takeOver()
	if err != nil {
		return nil, err
	}
	defer dead.close()
	never := time.Duration(0)
	t := &top{fs: f}
	server, err := f.serve(t, &fs.Options{
		MountOptions: fuse.MountOptions{
			AllowOther: true, Options: []string{"default_permissions"}, FsName: "gantry", Name: "tracens",
			DirectMountStrict: true, DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV, DisableXAttrs: true,
			DisableSplice: true, // nothing here is a file's
			Logger:        o.Log,
		},
		EntryTimeout: &never, AttrTimeout: &never, NegativeTimeout: &never, Logger: o.Log,
	})
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("mount tracing namespaces at %s: %w", dir, err),
			"it needs root and /dev/fuse")
	}
	f.server = server
	if f.noPassthrough = passthrough(server); o.NoPassthrough {
		f.noPassthrough = errors.ErrUnsupported
	}
	err = f.restore(context.Background(), t)
	if err == nil && dead != nil {
		err = f.replace(dead)
	}
	if err != nil {
		return nil, errors.Join(err, f.Unmount())
	}
	return f, nil
}

// serve mounts the file system and answers the kernel until it is gone.
func (f *FS) serve(t *top, o *fs.Options) (*fuse.Server, error) {
	server, err := fuse.NewServer(fs.NewNodeFS(t, o), f.dir, &o.MountOptions)
	if err != nil {
		return nil, err
	}
	f.serving.Go(server.Serve) // it closes /dev/fuse, for which Server.Wait does not wait
	return server, server.WaitMount()
}

// Registry is the namespaces.
func (f *FS) Registry() *tracens.Registry { return f.registry }

// Events is the user events of a namespace.
func (f *FS) Events(ns *tracens.Namespace) *events.Set { return f.events.Of(ns) }

// Dir is where the file system is mounted.
func (f *FS) Dir() string { return f.dir }

// Unmount takes the file system away, also where it is still mounted into containers,
// and waits until nothing is asked any more.
func (f *FS) Unmount() error {
	for _, ns := range f.registry.List() {
		f.rings.hangUp(ns) // sockets hold what they are in
	}
	// Not by the library, which waits for whoever has a file of it open.
	err := syscall.Unmount(f.dir, syscall.MNT_DETACH)
	if errors.Is(err, syscall.EINVAL) {
		err = nil // somebody did already
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", f.dir, err)
	}
	return nil
}

// Wait waits until the file system is mounted nowhere any more.
func (f *FS) Wait() {
	f.serving.Wait()
	f.end.Do(func() { close(f.ended) })
	f.readers.Wait()
}

// passthrough finds out whether files can be the memory of this process (Linux 6.9).
func passthrough(server *fuse.Server) error {
	fd, err := sys.SharedMemory("gantry-probe", sys.PageSize())
	if err != nil {
		return err
	}
	defer fd.Close()
	id, errno := server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd.Int())})
	if errno != 0 {
		return fmt.Errorf("FUSE passthrough, of Linux 6.9, and CAP_SYS_ADMIN: %w", errno)
	}
	server.UnregisterBackingFd(id)
	return nil
}

// writer is a thread that writes now.
func writer(tid int) events.Writer { return events.Writer{TID: tid, Time: monotonic()} }

// monotonic is the time of CLOCK_MONOTONIC, in nanoseconds.
func monotonic() uint64 {
	t, err := sys.ClockMonotonic.Now()
	if err != nil {
		panic(err) // every kernel has it
	}
	return uint64(t)
}

// newClock is the clock of rings: the counter of the CPU if the kernel has it for its own.
func newClock() *ring.Clock {
	const source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
	if text, err := os.ReadFile(source); err == nil && strings.TrimSpace(string(text)) == "tsc" {
		return ring.NewClock(ring.TSC, monotonic)
	}
	return nil
}

// errno is what a program gets for an error.
func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return syscall.EIO
}

// caller is the thread that asks, as our pid namespace numbers it.
func caller(ctx context.Context) (pid int, err error) {
	c, ok := fuse.FromContext(ctx)
	if !ok || c.Pid == 0 {
		return 0, fmt.Errorf("a process that cannot be seen from here: %w", syscall.EFAULT)
	}
	return int(c.Pid), nil
}
