// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// checkTable fails unless what was made of CFI can be used.
func checkTable(t *testing.T, tab *table) {
	t.Helper()
	for _, s := range tab.spans {
		if uint64(s.first)+uint64(s.n) > uint64(len(tab.rows)) || s.start > s.end {
			t.Fatalf("span %+v of %d rows", s, len(tab.rows))
		}
		rows := tab.rows[s.first : s.first+s.n]
		for i, r := range rows {
			if int(r.rule) >= len(tab.rules) || i > 0 && r.off <= rows[i-1].off {
				t.Fatalf("rows %+v of %d rules", rows, len(tab.rules))
			}
		}
	}
	checkRules(t, tab)
}

// checkRules fails unless every rule can be followed.
func checkRules(t *testing.T, tab *table) {
	t.Helper()
	for _, r := range tab.rules {
		if uint64(r.first)+uint64(r.n) > uint64(len(tab.regs)) || r.ra >= numRegs || r.cfaReg >= numRegs {
			t.Fatalf("rule %+v of %d registers", r, len(tab.regs))
		}
		if r.flags&cfaIsExpr != 0 && (r.cfaOff < 0 || int(r.cfaOff) >= len(tab.exprs)) {
			t.Fatalf("rule %+v of %d expressions", r, len(tab.exprs))
		}
	}
	for _, g := range tab.regs {
		isExpr := g.kind == atExpr || g.kind == isExpr
		if g.reg >= numRegs || isExpr && (g.arg < 0 || int(g.arg) >= len(tab.exprs)) || g.kind == inReg && (g.arg < 0 || g.arg >= numRegs) {
			t.Fatalf("register %+v of %d expressions", g, len(tab.exprs))
		}
	}
}

// FuzzFile: any file, asked for any address.
func FuzzFile(f *testing.F) {
	for _, arch := range []perf.Arch{perf.AMD64, perf.ARM64} {
		c := newCFI(arch, insn(opDefCFAOffset, uint64(16)), insn(opAdvance|4), insn(opDefCFAExpr, block(xBreg0+7, 8)))
		data := c.bytes()
		text := testSection{name: ".text", addr: codeAt, data: make([]byte, 64), exec: true}
		f.Add(makeELF(machineOf(arch), text, testSection{name: ".eh_frame", addr: frameAt, data: data},
			testSection{name: ".eh_frame_hdr", addr: hdrAt, data: c.hdr(hdrAt), ehHdr: true}), uint64(leafAt))
		d := newCFI(arch)
		d.debug = true
		f.Add(makeELF(machineOf(arch), text, testSection{name: ".debug_frame", data: d.bytes()}), uint64(callerAt))
	}
	f.Fuzz(func(t *testing.T, file []byte, addr uint64) {
		for _, arch := range []perf.Arch{perf.AMD64, perf.ARM64} {
			b := binaryOf(arch, file)
			b.load()
			for _, a := range []uint64{addr, addr + 1, leafAt, callerAt + 3} {
				if n, ok := b.ruleAt(a); ok && int(n) >= len(b.rules) {
					t.Fatalf("rule %d of %d", n, len(b.rules))
				}
				b.guess(a, true)
				b.guess(a, false)
			}
			checkTable(t, &b.table)
		}
	})
}

// FuzzUnwind: any instructions, any stack.
func FuzzUnwind(f *testing.F) {
	f.Add(insn(opDefCFAOffset, uint64(16)), words(1, returnTo), uint64(stackBase), false)
	f.Add(insn(opDefCFAExpr, block(xBreg0+amd64RSP, 8, xDeref)), words(1, stackBase+16, returnTo), uint64(0), false)
	f.Add(insn(opNegateRAState), words(1, 2), uint64(returnTo), true)
	f.Fuzz(func(t *testing.T, insns, stack []byte, reg uint64, arm bool) {
		arch := perf.AMD64
		if arm {
			arch = perf.ARM64
		}
		space := spaceOf(arch, newCFI(arch, insns), nil)
		role := registersOf(arch)
		regs := map[uint8]uint64{}
		for n := range uint8(numRegs) {
			regs[n] = reg
		}
		regs[role.pc], regs[role.sp] = loadAddr+leafAt+4, stackBase
		s := regsOf(arch, regs)
		s.Memory = stack
		u := New(arch)
		first, res := u.Unwind(nil, s, space)
		if len(first) == 0 || len(first) > MaxFrames || res.Exact > len(first) || res.End >= numEnds {
			t.Fatalf("%d frames, %+v", len(first), res)
		}
		again, res2 := u.Unwind(nil, s, space)
		if len(again) != len(first) || res != res2 {
			t.Fatalf("%d frames, %+v, then %d, %+v", len(first), res, len(again), res2)
		}
		checkTable(t, &space.b.table)
	})
}

// FuzzExpression: any expression ends.
func FuzzExpression(f *testing.F) {
	f.Add([]byte{xBreg0 + 7, 8, xDeref}, words(1, 2, 3))
	f.Fuzz(func(t *testing.T, expr, stack []byte) {
		var regs [numRegs]uint64
		e := evaluation{regs: &regs, known: 1<<numRegs - 1, mem: &stackMemory{data: stack}}
		e.run(expr)
		if e.n < 0 || e.n > maxExprStack {
			t.Fatalf("stack of %d", e.n)
		}
	})
}
