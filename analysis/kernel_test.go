// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// TestKernelElsewhere: a kernel that was loaded elsewhere is named by the address
// of the symbol that its mapping is called after; modules, which lie elsewhere
// again, are not.
func TestKernelElsewhere(t *testing.T) {
	const moved = 2 << 20
	table := "ffffffff81000000 T _text\nffffffff81000100 T _stext\nffffffff81001000 T do_idle\n" +
		"ffffffff81002000 T schedule\nffffffff81003000 T _etext\nffffffff81300000 t probe\t[late]\n"
	for _, tc := range []struct {
		name string
		addr uint64
	}{{"_text", 0xffffffff81000000}, {"_stext", 0xffffffff81000100}} {
		for _, shift := range []uint64{0, moved} {
			r := newRecording(t, 0)
			m := kernelMap(tc.addr + shift)
			m.Addr, m.Filename = 0xffffffff81000000+shift, "[kernel.kallsyms]"+tc.name
			r.add(m)
			for _, ip := range []uint64{0xffffffff81002010, 0xffffffff81300010} {
				s := sample(1, ip+shift)
				s.Misc = perf.MiscKernel
				r.add(s)
			}
			p, err := r.open(nil, &Options{Kallsyms: func(Kernel) (*symbol.Kallsyms, error) {
				return symbol.ReadKallsyms(bytes.NewReader([]byte(table)))
			}}).Collect(CollectOptions{Symbols: true})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for sm := range p.Samples() {
				got[p.Frame(p.Stack(sm.Stack)[0]).Name] = true
			}
			if !got["schedule"] || got["probe"] != (shift == 0) || len(got) != 2 {
				t.Errorf("%s, moved by %#x: %v", tc.name, shift, got)
			}
		}
	}
}

// TestKernelUnderAPath: perf records the kernel's build-id under the path of the
// image that -k names; modules have paths, too.
func TestKernelUnderAPath(t *testing.T) {
	id := func(c byte) []byte { return bytes.Repeat([]byte{c}, 20) }
	module := perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscKernel, ID: id('m'), Path: "/lib/modules/5.4/kernel/fs/ext4.ko.xz"}
	user := perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscUser, ID: id('u'), Path: "/usr/lib/libc.so.6"}
	for name, tc := range map[string]struct {
		entry perfdata.BuildIDEntry
		want  []byte
	}{
		"image":    {perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscKernel, ID: id('k'), Path: "/boot/vmlinux-5.4"}, id('k')},
		"kallsyms": {perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscKernel, ID: id('k'), Path: symbol.KernelDSO}, id('k')},
		"none":     {module, nil},
	} {
		r := newRecording(t, 0)
		s := sample(1, 0xffffffff81002010)
		s.Misc = perf.MiscKernel
		r.add(kernelMap(0xffffffff81000000), s)
		var asked Kernel
		_, err := r.open(&perfdata.Features{BuildIDs: []perfdata.BuildIDEntry{module, tc.entry, user}},
			&Options{Kallsyms: func(k Kernel) (*symbol.Kallsyms, error) { asked = k; return kallsyms(k) }}).
			Collect(CollectOptions{Symbols: true})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(asked.BuildID.Bytes(), tc.want) {
			t.Errorf("%s: asked for kernel %s", name, asked.BuildID)
		}
	}
}
