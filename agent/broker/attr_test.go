// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// memory reads from bytes as a process's memory at address 0x1000 is read.
func memory(b []byte) func(uint64, []byte) (int, error) {
	return func(addr uint64, p []byte) (int, error) {
		at := addr - 0x1000
		if addr < 0x1000 || at >= uint64(len(b)) {
			return 0, syscall.EFAULT
		}
		return copy(p, b[at:]), nil
	}
}

// encoded is an attr with its size field set to size, and n bytes of it.
func encoded(size uint32, n int) []byte {
	a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWTaskClock, Flags: perf.AttrExcludeKernel}
	b := a.Append(nil, hostOrder)
	for len(b) < n {
		b = append(b, 0)
	}
	binary.NativeEndian.PutUint32(b[4:], size)
	return b[:n]
}

func TestReadAttr(t *testing.T) {
	newer := encoded(perf.AttrSize+16, perf.AttrSize+16)
	newer[perf.AttrSize+3] = 1
	for _, tt := range []struct {
		name string
		mem  []byte
		want syscall.Errno
	}{
		{"whole", encoded(perf.AttrSize, perf.AttrSize), 0},
		{"the oldest", encoded(perf.AttrSizeVer0, perf.AttrSizeVer0), 0},
		{"size 0 is the oldest", encoded(0, perf.AttrSizeVer0), 0},
		{"a newer one with zeros", encoded(perf.AttrSize+16, perf.AttrSize+16), 0},
		{"a newer one", newer, syscall.E2BIG},
		{"too small", encoded(8, perf.AttrSize), syscall.E2BIG},
		{"not of words", encoded(perf.AttrSize-3, perf.AttrSize), syscall.E2BIG},
		{"more than a page", encoded(8192, perf.AttrSize), syscall.E2BIG},
		{"memory ends early", encoded(perf.AttrSize, perf.AttrSizeVer0), syscall.EFAULT},
		{"memory ends in what is newer", encoded(perf.AttrSize+64, perf.AttrSize+8), syscall.EFAULT},
		{"no memory", nil, syscall.EFAULT},
		{"half of the oldest", encoded(0, 32), syscall.EFAULT},
	} {
		a, err := readAttr(memory(tt.mem), 0x1000)
		if !errors.Is(err, tt.want) && (tt.want != 0 || err != nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if err == nil && (a.Config != perf.SWTaskClock || !a.Flags.Has(perf.AttrExcludeKernel)) {
			t.Errorf("%s: %+v", tt.name, a)
		}
	}
}

func FuzzReadAttr(f *testing.F) {
	f.Add(encoded(perf.AttrSize, perf.AttrSize))
	f.Add(encoded(perf.AttrSize+16, perf.AttrSize+16))
	f.Add(encoded(0, perf.AttrSizeVer0))
	c := testChecker(DefaultPolicy())
	f.Fuzz(func(t *testing.T, mem []byte) {
		reads := 0
		read := memory(mem)
		a, err := readAttr(func(addr uint64, p []byte) (int, error) { reads++; return read(addr, p) }, 0x1000)
		if err != nil {
			return
		}
		if reads > 2 {
			t.Fatalf("%d reads", reads)
		}
		if c.check(&a) != nil {
			return
		}
		raw := a.Append(nil, hostOrder)
		again, err := perf.DecodeAttr(raw, hostOrder)
		if err != nil || !bytes.Equal(again.Append(nil, hostOrder), raw) {
			t.Fatalf("%+v is not what is opened: %v", a, err)
		}
		counts := a.Type == perf.TypeSoftware && (a.SampleCount == 0 || a.Config == perf.SWDummy)
		if !a.Flags.Has(perf.AttrExcludeKernel) && !counts && a.Type != perf.TypeTracepoint {
			t.Fatalf("samples of the kernel: %+v", a)
		}
		if a.Flags&(strippedFlags|refusedFlags) != 0 || a.SampleType&refusedSamples != 0 {
			t.Fatalf("what is not for containers: %+v", a)
		}
	})
}

func testChecker(p Policy) *checker {
	return &checker{
		policy: &p,
		tracepoint: func(id uint64) string {
			return map[uint64]string{7: "raw_syscalls:sys_enter", 8: "sched:sched_switch"}[id]
		},
		core: func(t perf.EventType) bool { return t == 42 },
	}
}

func TestCheck(t *testing.T) {
	user := perf.AttrExcludeKernel
	allow := DefaultPolicy()
	allow.Tracepoints = []string{"raw_syscalls:*"}
	kernel := allow
	kernel.Kernel = true
	soft := allow
	soft.Classes = Software
	for _, tt := range []struct {
		name   string
		policy Policy
		attr   perf.Attr
		want   syscall.Errno
	}{
		{"clock of user space", allow, perf.Attr{Type: perf.TypeSoftware, SampleCount: 1000, Flags: user}, 0},
		{"clock of the kernel", allow, perf.Attr{Type: perf.TypeSoftware, SampleCount: 1000}, syscall.EACCES},
		{"and where it is allowed", kernel, perf.Attr{Type: perf.TypeSoftware, SampleCount: 1000}, 0},
		{"a count", allow, perf.Attr{Type: perf.TypeSoftware, Config: perf.SWContextSwitches}, 0},
		{"sideband", allow, perf.Attr{Type: perf.TypeSoftware, Config: perf.SWDummy, SampleCount: 1}, 0},
		{"cycles", allow, perf.Attr{Type: perf.TypeHardware, Flags: user}, 0},
		{"cycles of the kernel", allow, perf.Attr{Type: perf.TypeHardware}, syscall.EACCES},
		{"cycles, only software allowed", soft, perf.Attr{Type: perf.TypeHardware, Flags: user}, syscall.ENOENT},
		{"the CPU's own", allow, perf.Attr{Type: perf.TypeRaw, Config: 0x1c2, Flags: user}, 0},
		{"a PMU of the CPUs", allow, perf.Attr{Type: 42, Flags: user}, 0},
		{"another PMU", allow, perf.Attr{Type: 43, Flags: user}, syscall.ENOENT},
		{"breakpoint", kernel, perf.Attr{Type: perf.TypeBreakpoint, Flags: user}, syscall.EACCES},
		{"tracepoint on the list", allow, perf.Attr{Type: perf.TypeTracepoint, Config: 7}, 0},
		{"tracepoint off the list", kernel, perf.Attr{Type: perf.TypeTracepoint, Config: 8}, syscall.EACCES},
		{"unknown tracepoint", kernel, perf.Attr{Type: perf.TypeTracepoint, Config: 9}, syscall.EACCES},
		{"its registers", allow, perf.Attr{Type: perf.TypeTracepoint, Config: 7, SampleType: perf.SampleRegsIntr},
			syscall.EACCES},
		{"signal", kernel, perf.Attr{Type: perf.TypeSoftware, Flags: user | perf.AttrSigtrap}, syscall.EACCES},
		{"hardware trace", kernel, perf.Attr{Type: perf.TypeSoftware, Flags: user | perf.AttrAuxOutput}, syscall.EACCES},
		{"physical addresses", kernel, perf.Attr{Type: perf.TypeHardware, Flags: user, SampleType: perf.SamplePhysAddr},
			syscall.EACCES},
		{"output of BPF programs", kernel, perf.Attr{Type: perf.TypeSoftware, Config: perf.SWBPFOutput}, syscall.ENOENT},
		{"a flag of a newer kernel", kernel, perf.Attr{Type: perf.TypeSoftware, Flags: user | 1<<63}, syscall.EINVAL},
		{"a sample of a newer kernel", kernel, perf.Attr{Type: perf.TypeSoftware, Flags: user, SampleType: 1 << 63},
			syscall.EINVAL},
		{"branches of the kernel", allow, perf.Attr{Type: perf.TypeHardware, Flags: user, SampleType: perf.SampleBranchStack,
			BranchSampleType: 2}, syscall.EACCES},
		{"branches of user space", allow, perf.Attr{Type: perf.TypeHardware, Flags: user, SampleType: perf.SampleBranchStack,
			BranchSampleType: 1}, 0},
	} {
		a := tt.attr
		a.Flags |= perf.AttrPinned | perf.AttrKsymbol | perf.AttrBPFEvent | perf.AttrCgroup
		err := testChecker(tt.policy).check(&a)
		if !errors.Is(err, tt.want) && (tt.want != 0 || err != nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if err == nil && a.Flags&strippedFlags != 0 {
			t.Errorf("%s: flags that are stripped are left: %#x", tt.name, a.Flags)
		}
	}
}

func TestRates(t *testing.T) {
	p := DefaultPolicy()
	p.MaxFrequency = 1000
	user := perf.AttrExcludeKernel
	for _, tt := range []struct {
		attr perf.Attr
		want uint64
	}{
		{perf.Attr{Type: perf.TypeSoftware, SampleCount: 4000, Flags: user | perf.AttrFreq}, 1000},
		{perf.Attr{Type: perf.TypeSoftware, SampleCount: 99, Flags: user | perf.AttrFreq}, 99},
		{perf.Attr{Type: perf.TypeSoftware, SampleCount: 1000, Flags: user}, 1_000_000},
		{perf.Attr{Type: perf.TypeSoftware, Config: perf.SWPageFaults, SampleCount: 1, Flags: user}, 1},
	} {
		a := tt.attr
		if err := testChecker(p).check(&a); err != nil || a.SampleCount != tt.want {
			t.Errorf("%+v: %d, %v, want %d", tt.attr, a.SampleCount, err, tt.want)
		}
	}
}

func TestAudit(t *testing.T) {
	var out bytes.Buffer
	l := audit{w: &out}
	for range 3 {
		l.add(&Entry{Container: "a", Event: "x", Decision: Granted})
	}
	l.add(&Entry{Container: "a", Event: "y", Decision: Refused, Reason: "because"})
	if err := l.flush(0); err != nil {
		t.Fatal(err)
	}
	want := `"event":"x","scope":"","decision":"granted","count":3}`
	if got := out.String(); !bytes.Contains(out.Bytes(), []byte(want)) || bytes.Count(out.Bytes(), []byte("\n")) != 2 {
		t.Errorf("got %s, want %s", got, want)
	}
}
