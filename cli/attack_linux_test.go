// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// attackName is the name of this program where it is what runs in a container and
// tries to get what is not the container's.
const attackName = "attack"

// attacks are what it can do. An error is a hole, or that the attack did not happen.
var attacks = map[string]func(args []string) error{
	"open":        openForEver,
	"flip":        flipAttr,
	"refused":     openRefused,
	"opener":      attackOpener,
	"ioctl":       abuseDescriptor,
	"flood":       flood,
	"badcalls":    floodBadCalls,
	"killed":      killClients,
	"tasks":       openTasks,
	"denied":      openDenied,
	"descriptors": abuseGroups,
	"socket":      abuseSocket,
	"held":        holdMemory,
	"hide":        hideCapability,
}

func attack(args []string) int {
	f := attacks[args[0]]
	if f == nil {
		fmt.Println("no such attack")
		return 2
	}
	if err := f(args[1:]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// clockAttr is an event of user space that every container may have.
func clockAttr() perf.Attr {
	return perf.Attr{Type: perf.TypeSoftware, Config: perf.SWCPUClock,
		Flags: perf.AttrDisabled | perf.AttrExcludeKernel | perf.AttrExcludeHV}
}

func openAttr(a perf.Attr, pid, cpu int) (*sys.FD, error) {
	return sys.PerfEventOpen(a.Append(nil, perf.LittleEndian), pid, cpu, nil, sys.PerfCloexec)
}

// openForEver opens events until its input ends; none may fail.
func openForEver([]string) error {
	var ended atomic.Bool
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		ended.Store(true)
	}()
	fmt.Println("ready")
	for i := 1; !ended.Load(); i++ {
		fd, err := openAttr(clockAttr(), -1, 0)
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		fd.Close()
		if i%100 == 0 {
			fmt.Println(100)
		}
	}
	return nil
}

// flipAttr has a thread change exclude_kernel all the time while another one opens,
// and looks for addresses of the kernel in what is sampled.
func flipAttr([]string) error {
	const flagsAt = 40 // of the flags in struct perf_event_attr
	a := clockAttr()
	a.Flags &^= perf.AttrDisabled
	a.SampleCount, a.SampleType = 20_000, perf.SampleIP
	raw := a.Append(nil, perf.LittleEndian)
	word := (*uint64)(unsafe.Pointer(&raw[flagsAt]))
	with := uint64(perf.AttrExcludeKernel)
	var stop atomic.Bool
	var flipped atomic.Uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		for !stop.Load() {
			atomic.StoreUint64(word, atomic.LoadUint64(word)^with)
			flipped.Add(1)
		}
	})
	granted, denied, samples := 0, 0, 0
	var hole error
	enough := func() bool { return granted >= 100 && denied >= 100 && samples > 20 && flipped.Load() > 10_000 }
	for i := 0; i < 100_000 && hole == nil && !enough(); i++ {
		fd, err := sys.PerfEventOpen(raw, 0, -1, nil, 0)
		if err != nil {
			denied++
			continue
		}
		granted++
		var n int
		n, hole = kernelSamples(fd)
		samples += n
		fd.Close()
	}
	stop.Store(true)
	wg.Wait()
	if hole == nil && !enough() {
		hole = fmt.Errorf("no attack: %d granted, %d denied, %d samples, %d flips", granted, denied, samples,
			flipped.Load())
	}
	return hole
}

// kernelSamples makes system calls while an event samples this thread, and looks for
// addresses of the kernel.
func kernelSamples(fd *sys.FD) (n int, err error) {
	const pages = 8
	ring, err := sys.Mmap(fd, (pages+1)*sys.PageSize(), true)
	if err != nil {
		return 0, err
	}
	defer ring.Close()
	b := ring.Bytes()
	head := (*uint64)(unsafe.Pointer(&b[1024]))
	for range 300 {
		_ = syscall.Getppid()
		if _, err := os.Stat("/proc/self/status"); err != nil {
			return 0, err
		}
		if atomic.LoadUint64(head) > 0 {
			break
		}
	}
	data := b[sys.PageSize():]
	for at := uint64(0); at+16 <= atomic.LoadUint64(head); {
		size := binary.NativeEndian.Uint16(data[at+6:])
		if binary.NativeEndian.Uint32(data[at:]) == uint32(perf.RecordSample) {
			n++
			if ip := binary.NativeEndian.Uint64(data[at+8:]); ip>>63 != 0 {
				return n, fmt.Errorf("a sample has the kernel's address %#x", ip)
			}
		}
		if size == 0 {
			break
		}
		at += uint64(size)
	}
	return n, nil
}

// openRefused opens what no container may have.
func openRefused([]string) error {
	kernel := clockAttr()
	kernel.Flags &^= perf.AttrExcludeKernel
	kernel.SampleCount = 100000
	list := map[string]perf.Attr{"samples of the kernel": kernel}
	add := func(name string, change func(*perf.Attr)) {
		a := clockAttr()
		change(&a)
		list[name] = a
	}
	add("breakpoint", func(a *perf.Attr) { a.Type = perf.TypeBreakpoint; a.BPType = 1; a.Config1 = 0x1000; a.Config2 = 8 })
	add("sigtrap", func(a *perf.Attr) { a.Flags |= perf.AttrSigtrap | perf.AttrRemoveOnExec })
	add("physical addresses", func(a *perf.Attr) { a.SampleType = perf.SamplePhysAddr })
	add("output of BPF programs", func(a *perf.Attr) { a.Config = perf.SWBPFOutput })
	add("tracepoint", func(a *perf.Attr) { a.Type = perf.TypeTracepoint; a.Config = 300 })
	add("unknown flags", func(a *perf.Attr) { a.Flags |= 1 << 60 })
	add("unknown samples", func(a *perf.Attr) { a.SampleType = 1 << 40 })
	types, err := filepath.Glob("/sys/bus/event_source/devices/*/type")
	if err != nil || len(types) == 0 {
		return fmt.Errorf("no PMUs to try: %v", err)
	}
	for _, file := range types {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		t, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		if t > int(perf.TypeBreakpoint) {
			add("PMU "+file, func(a *perf.Attr) { a.Type = perf.EventType(t) })
		}
	}
	for name, a := range list {
		for _, where := range [][2]int{{-1, 0}, {0, -1}} {
			if fd, err := openAttr(a, where[0], where[1]); err == nil {
				fd.Close()
				return fmt.Errorf("%s, pid %d: granted", name, where[0])
			}
		}
	}
	dir, err := sys.Open("/", os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	a := clockAttr()
	raw := a.Append(nil, perf.LittleEndian)
	if fd, err := sys.PerfEventOpen(raw, dir.Int(), 0, nil, sys.PerfPIDCgroup); err == nil {
		fd.Close()
		return errors.New("a cgroup of its own choice: granted")
	}
	return nil
}

// openerPID finds the opener among the container's processes.
func openerPID() (int, error) {
	list, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, err
	}
	for _, file := range list {
		if name, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(name)) == "gantry-opener" {
			return strconv.Atoi(strings.Split(file, "/")[2])
		}
	}
	return 0, errors.New("no opener to be seen")
}

// attackOpener tries to get at the opener, and then to be without it.
func attackOpener([]string) error {
	fd, err := openAttr(clockAttr(), -1, 0)
	if err != nil {
		return err
	}
	fd.Close()
	pid, err := openerPID()
	if err != nil {
		return err
	}
	if err := syscall.PtraceAttach(pid); err == nil {
		return errors.New("the opener can be traced")
	}
	for _, name := range []string{"mem", "environ", "maps", "auxv", "syscall", "stack"} {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)); err == nil && len(text) > 0 {
			return fmt.Errorf("/proc/PID/%s of the opener can be read: %q", name, text)
		}
	}
	// Its descriptors can be counted, and no more.
	for n := range 8 {
		file := fmt.Sprintf("/proc/%d/fd/%d", pid, n)
		if link, err := os.Readlink(file); err == nil {
			return fmt.Errorf("%s is told: %s", file, link)
		}
		if f, err := os.Open(file); err == nil {
			f.Close()
			return fmt.Errorf("%s can be opened", file)
		}
	}
	for _, name := range []string{"root", "cwd", "map_files"} {
		if list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s/", pid, name)); err == nil {
			return fmt.Errorf("/proc/PID/%s of the opener can be listed: %v", name, list)
		}
	}
	for _, ns := range []string{"mnt", "net", "pid", "user"} {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, ns)); err == nil {
			f.Close()
			return fmt.Errorf("the opener's %s namespace can be opened", ns)
		}
	}
	if pidfd, err := sys.PidfdOpen(pid); err == nil {
		defer pidfd.Close()
		for n := range 8 {
			if got, err := sys.PidfdGetFD(pidfd, n); err == nil {
				got.Close()
				return fmt.Errorf("the opener's descriptor %d can be taken", n)
			}
		}
	}
	for range 20 {
		if pid, err = openerPID(); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if fd, err = openAgain(); err != nil {
			return fmt.Errorf("the opener was killed: %w", err)
		}
		fd.Close()
	}
	if pid, err = openerPID(); err != nil {
		return err
	}
	// The root of a user namespace may do neither.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	if fd, err = openAgain(); err != nil {
		return fmt.Errorf("the opener was stopped: %w", err)
	}
	return fd.Close()
}

// openAgain opens an event, again where it is told to.
func openAgain() (*sys.FD, error) {
	for try := 0; ; try++ {
		fd, err := openAttr(clockAttr(), -1, 0)
		if err == nil || !errors.Is(err, syscall.EAGAIN) || try == 20 {
			return fd, err
		}
	}
}

// abuseDescriptor does with a granted event what the kernel must refuse.
func abuseDescriptor([]string) error {
	a := clockAttr()
	a.SampleCount, a.SampleType = 1_000_000, perf.SampleIP
	fd, err := openAttr(a, -1, 0)
	if err != nil {
		return err
	}
	defer fd.Close()
	ioctl := func(req, arg uintptr) error {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd.Int()), req, arg)
		if errno != 0 {
			return errno
		}
		return nil
	}
	// The attr with samples of the kernel.
	a.Flags &^= perf.AttrExcludeKernel
	raw := a.Append(nil, perf.LittleEndian)
	one, filter := uint64(1), []byte("common_pid > 0\x00")
	var query [64]uint32
	query[0] = 8
	for _, c := range []struct {
		name string
		req  uintptr
		arg  uintptr
	}{
		{"PERF_EVENT_IOC_MODIFY_ATTRIBUTES", 0x4008240b, uintptr(unsafe.Pointer(&raw[0]))},
		{"PERF_EVENT_IOC_SET_BPF", 0x40042408, uintptr(fd.Int())},
		{"PERF_EVENT_IOC_QUERY_BPF", 0xc008240a, uintptr(unsafe.Pointer(&query[0]))},
		{"PERF_EVENT_IOC_SET_FILTER", 0x40082406, uintptr(unsafe.Pointer(&filter[0]))},
	} {
		if err := ioctl(c.req, c.arg); err == nil {
			return fmt.Errorf("%s: granted", c.name)
		}
	}
	// One that is allowed, and changes nothing of what is seen.
	const periodIoctl = 0x40082404
	if err := ioctl(periodIoctl, uintptr(unsafe.Pointer(&one))); err != nil {
		return fmt.Errorf("PERF_EVENT_IOC_PERIOD: %w", err)
	}
	runtime.KeepAlive(raw)
	runtime.KeepAlive(filter)
	return nil
}

// abuseGroups names descriptors as leaders of groups that are none.
func abuseGroups([]string) error {
	null, err := sys.Open("/dev/null", os.O_RDWR)
	if err != nil {
		if null, err = sys.Open("/", os.O_RDONLY); err != nil {
			return err
		}
	}
	defer null.Close()
	a := clockAttr()
	raw := a.Append(nil, perf.LittleEndian)
	if fd, err := sys.PerfEventOpen(raw, 0, -1, null, 0); err == nil {
		fd.Close()
		return errors.New("/dev/null leads a group")
	}
	leader, err := openAttr(clockAttr(), 0, -1)
	if err != nil {
		return err
	}
	defer leader.Close()
	member, err := sys.PerfEventOpen(raw, 0, -1, leader, 0)
	if err != nil {
		return fmt.Errorf("a group: %w", err)
	}
	return member.Close()
}

// flood opens 10,000 events and more a second, if it may.
func flood([]string) error {
	const threads, opens = 8, 800
	errs := make(chan error, threads)
	began := time.Now()
	for range threads {
		go func() {
			var err error
			for i := 0; i < opens && err == nil; i++ {
				var fd *sys.FD
				if fd, err = openAttr(clockAttr(), -1, 0); err == nil {
					fd.Close()
				}
			}
			errs <- err
		}()
	}
	var err error
	for range threads {
		err = errors.Join(err, <-errs)
	}
	fmt.Printf("%d opens in %v\n", threads*opens, time.Since(began).Round(time.Millisecond))
	return err
}

// floodBadCalls makes calls whose arguments are wrong, from many threads.
func floodBadCalls([]string) error {
	const threads, calls = 32, 300
	errs := make(chan error, threads)
	for n := range threads {
		go func() {
			r := uintptr(n)
			for i := range uintptr(calls) {
				// An address that is not mapped, any pid, CPU, group and flags.
				r = r*6364136223846793005 + 1442695040888963407
				fd, _, errno := syscall.Syscall6(sys.SysPerfEventOpen, r>>20, r%70000, r%7-1, r%300-1, i%32, 0)
				if errno == 0 {
					syscall.Close(int(fd))
					errs <- fmt.Errorf("a call with an attr at %#x: granted", r>>20)
					return
				}
			}
			errs <- nil
		}()
	}
	var err error
	for range threads {
		err = errors.Join(err, <-errs)
	}
	return err
}

// killClients kills processes while they open events.
func killClients([]string) error {
	for i := range 60 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{attackName, "open"}
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		// At each time of its life.
		for range i * 1000 {
			_ = syscall.Getppid()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // of the signal
		in.Close()
	}
	fd, err := openAgain()
	if err != nil {
		return fmt.Errorf("after clients were killed: %w", err)
	}
	return fd.Close()
}

// openTasks opens events of the tasks that are named, all of which must be granted.
func openTasks(args []string) error {
	for _, text := range args {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		fd, err := openAttr(clockAttr(), pid, -1)
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		fd.Close()
	}
	return nil
}

// openDenied opens events of the tasks that are named, -1 for all tasks: none may be
// granted.
func openDenied(args []string) error {
	for _, text := range args {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		cpu := -1
		if pid == -1 {
			cpu = 0
		}
		fd, err := openAttr(clockAttr(), pid, cpu)
		if err == nil {
			fd.Close()
			return fmt.Errorf("process %d: granted", pid)
		}
		if !slices.Contains([]error{syscall.ESRCH, syscall.EACCES}, errors.Unwrap(err)) {
			fmt.Printf("process %d: %v\n", pid, err)
		}
	}
	return nil
}
