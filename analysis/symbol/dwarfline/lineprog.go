// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"math"
	"slices"
)

// lineMachine is the machine of line number programs.
type lineMachine struct {
	t *lineTable
	h *lineHeader
	d *Data

	addr    uint64
	opIndex uint64
	file    uint64
	line    int64
	first   int // row of the sequence
	open    bool
}

func (m *lineMachine) reset() {
	m.addr, m.opIndex, m.file, m.line = 0, 0, 1, 1
	m.first, m.open = len(m.t.rows), false
}

func (m *lineMachine) run() {
	m.reset()
	r, h := m.h.program, m.h
	m.t.rows = m.d.scratch.rows[:0]
	for r.off < uint64(len(r.b)) && m.d.rows < maxRows {
		op := r.b[r.off]
		r.off++
		switch {
		case op >= h.opcodeBase:
			adjusted := op - h.opcodeBase
			m.advance(uint64(adjusted / h.lineRange))
			m.line += int64(h.lineBase) + int64(adjusted%h.lineRange)
			m.emit()
		case op == 0:
			m.extended()
		default:
			m.standard(op)
		}
	}
	if m.d.rows >= maxRows {
		m.d.tooMuch()
	}
	m.d.scratch.rows = m.t.rows
	m.t.rows = slices.Clone(m.t.rows[:m.first]) // less a sequence without end
}

// advance moves by a number of operations.
func (m *lineMachine) advance(ops uint64) {
	if m.h.maxOps == 1 {
		m.addr += ops * m.h.minInst
		return
	}
	ops += m.opIndex
	m.addr += ops / uint64(m.h.maxOps) * m.h.minInst
	m.opIndex = ops % uint64(m.h.maxOps)
}

// emit adds a row. Of several rows at one address the last counts; a row that
// says the same as the one before is not needed.
func (m *lineMachine) emit() {
	x := row{m.addr, uint32(min(m.file, gap-1)), clampLine(m.line)}
	rows := m.t.rows
	if n := len(rows) - 1; n >= m.first {
		last := &rows[n]
		if last.addr == x.addr {
			*last = x
			return
		}
		if last.file == x.file && last.line == x.line && x.addr > last.addr {
			return
		}
	}
	m.open = true
	m.d.rows++
	m.t.rows = append(rows, x)
}

func (m *lineMachine) standard(op byte) {
	r := m.h.program
	switch op {
	case lnsCopy:
		m.emit()
	case lnsAdvancePC:
		m.advance(r.uleb())
	case lnsAdvanceLine:
		m.line += r.sleb()
	case lnsSetFile:
		m.file = r.uleb()
	case lnsSetColumn, lnsSetISA:
		r.uleb()
	case lnsNegateStmt, lnsSetBasicBlock, lnsSetPrologueEnd, lnsSetEpilogueBegin:
	case lnsConstAddPC:
		m.advance(uint64((255 - m.h.opcodeBase) / m.h.lineRange))
	case lnsFixedAdvancePC:
		m.addr += uint64(r.u16())
		m.opIndex = 0
	default: // of a later standard
		for range m.h.opcodeLengths[op-1] {
			r.uleb()
		}
	}
}

func (m *lineMachine) extended() {
	r := m.h.program
	n := r.uleb()
	if n == 0 || n > uint64(len(r.b))-r.off {
		r.fail()
		return
	}
	next := r.off + n
	switch r.u8() {
	case lneEndSequence:
		m.endSequence()
		m.reset()
	case lneSetAddress:
		m.addr = r.uint(uint8(min(n-1, 255)))
		m.opIndex = 0
	case lneDefineFile:
		m.t.addFile(r, r.str())
	}
	if !r.bad {
		r.off = next
	}
}

// endSequence keeps the rows of a sequence, unless the linker has dropped its
// code.
func (m *lineMachine) endSequence() {
	t := m.t
	if !m.open {
		return
	}
	start := t.rows[m.first].addr
	if start == 0 || m.addr <= start || start >= math.MaxUint64-1 {
		m.d.rows -= len(t.rows) - m.first
		t.rows = t.rows[:m.first]
		return
	}
	t.seqs = append(t.seqs, sequence{start, m.addr, uint32(m.first), uint32(len(t.rows) - m.first)})
}
