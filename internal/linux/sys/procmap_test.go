// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"os"
	"reflect"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestProcmapFindsThisProgram(t *testing.T) {
	maps, err := Open("/proc/self/maps", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	p := NewProcmap()
	defer p.Close()
	here := uint64(reflect.ValueOf(TestProcmapFindsThisProgram).Pointer())
	var v VMA
	if err := p.Query(maps, here, ProcmapExecutable, true, &v); err != nil {
		if errors.Is(err, syscall.ENOTTY) {
			testutil.NotHere(t, "the kernel has no PROCMAP_QUERY (Linux 6.11)")
		}
		t.Fatal(err)
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if string(v.Name) != exe || here < v.Start || here >= v.End || v.Flags&ProcmapExecutable == 0 {
		t.Errorf("found %q %x-%x flags %x, want %q around %x", v.Name, v.Start, v.End, v.Flags, exe, here)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(exe, &st); err != nil || st.Ino != v.Inode {
		t.Errorf("inode %d, want %d (%v)", v.Inode, st.Ino, err)
	}
}

func TestProcmapEnds(t *testing.T) {
	maps, err := Open("/proc/self/maps", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	p := NewProcmap()
	defer p.Close()
	var v VMA
	err = p.Query(maps, ^uint64(0)-uint64(os.Getpagesize()), ProcmapOrNext|ProcmapWritable, false, &v)
	if errors.Is(err, syscall.ENOTTY) {
		testutil.NotHere(t, "the kernel has no PROCMAP_QUERY (Linux 6.11)")
	}
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("behind the last mapping: %v, want ENOENT", err)
	}
}

func TestProcmapABI(t *testing.T) {
	if n := unsafe.Sizeof(procmapQuery{}); n != 104 {
		t.Errorf("struct procmap_query has %d bytes, want 104", n)
	}
}
