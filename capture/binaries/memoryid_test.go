// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// buildIDOf is the build-id of a file.
func buildIDOf(t *testing.T, path string) buildid.ID {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestFromMemory reads the id of a program that was replaced while it ran, by
// one with another id.
func TestFromMemory(t *testing.T) {
	prog, other := testutil.SpinProgram(t, "memory_hot"), testutil.SpinProgram(t, "memory_other")
	want := buildIDOf(t, prog)
	cmd := testutil.StartReady(t, exec.Command(prog))
	if err := os.Rename(other, prog); err != nil {
		t.Fatal(err)
	}
	proc := procfs.FS{}.Proc(cmd.Process.Pid)
	var m perf.Mmap2
	err := proc.Maps(procfs.NewMapsScanner(), func(x *procfs.Mapping) error {
		if x.Prot&procfs.ProtExec != 0 && m.Len == 0 {
			m = perf.Mmap2{Addr: x.Start, Len: x.End - x.Start, Maj: x.DevMajor, Min: x.DevMinor, Ino: x.Inode,
				Filename: prog}
		}
		return nil
	})
	if err != nil || m.Ino == 0 {
		t.Fatal(m, err)
	}
	if id, ok := fromMemory(proc, &m); !ok || !bytes.Equal(id, want.Bytes()) {
		t.Errorf("%x, %v, want %v", id, ok, want)
	}
	reader := NewIDReader(nil)
	defer reader.Close()
	reader.NoQuery()
	if id, err := reader.Mapped(proc, &m); err != nil || !bytes.Equal(id, want.Bytes()) {
		t.Errorf("without the kernel's help: %x, %v, want %v", id, err, want)
	}
	for what, wrong := range map[string]func(*perf.Mmap2){
		"another file":   func(m *perf.Mmap2) { m.Ino++ },
		"another device": func(m *perf.Mmap2) { m.Maj++ },
		"before it":      func(m *perf.Mmap2) { m.Addr = 0 },
	} {
		x := m
		wrong(&x)
		if id, ok := fromMemory(proc, &x); ok {
			t.Errorf("%s: %x", what, id)
		}
	}
	if id, ok := fromMemory(procfs.FS{}.Proc(1<<30), &m); ok {
		t.Errorf("a process that is not there: %x", id)
	}
}
