// SPDX-License-Identifier: Apache-2.0

package disasm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// ErrObjdump is returned for output of objdump that is not the code's.
var ErrObjdump = errors.New("objdump shows other instructions")

// ObjdumpArgs are the arguments by which objdump shows the code of a file that
// has nothing else in it, as of addr, for ParseObjdump; nil for NoArch. The
// file's name goes behind them.
func ObjdumpArgs(a perf.Arch, addr uint64) []string {
	machine := ""
	switch a {
	case perf.AMD64:
		machine = "i386:x86-64"
	case perf.ARM64:
		machine = "aarch64"
	default:
		return nil
	}
	return []string{"-D", "-z", "-b", "binary", "-m", machine, "-w", "--no-show-raw-insn",
		fmt.Sprintf("--adjust-vma=%#x", addr)}
}

// target is an address that an instruction jumps to or refers to.
var (
	direct   = regexp.MustCompile(`\b0x([0-9a-f]+)$`)
	relative = regexp.MustCompile(`#\s*(?:0x)?([0-9a-f]+)`)
)

// ParseObjdump reads what objdump shows of size bytes of code at addr. The
// instructions must follow each other from the first byte to the last.
func ParseObjdump(a perf.Arch, text []byte, addr, size uint64) ([]Insn, error) {
	var list []Insn
	scan := bufio.NewScanner(bytes.NewReader(text))
	for scan.Scan() {
		where, rest, ok := strings.Cut(scan.Text(), ":\t")
		at, err := strconv.ParseUint(strings.TrimSpace(where), 16, 64)
		if !ok || err != nil {
			continue // a head
		}
		if n := len(list); n > 0 {
			if at <= list[n-1].Addr {
				return nil, fmt.Errorf("%w: %#x behind %#x", ErrObjdump, at, list[n-1].Addr)
			}
			list[n-1].Size = int(at - list[n-1].Addr)
		} else if at != addr {
			return nil, fmt.Errorf("%w: the first at %#x, not at %#x", ErrObjdump, at, addr)
		}
		if at-addr >= size {
			return nil, fmt.Errorf("%w: one at %#x, behind the end", ErrObjdump, at)
		}
		list = append(list, objdumpInsn(a, at, rest))
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrObjdump, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: none", ErrObjdump)
	}
	last := &list[len(list)-1]
	last.Size = int(addr + size - last.Addr)
	return list, nil
}

func objdumpInsn(a perf.Arch, addr uint64, text string) Insn {
	in := Insn{Addr: addr, Text: strings.Join(strings.Fields(text), " ")}
	in.Unknown = strings.Contains(in.Text, "(bad)") || strings.HasPrefix(in.Text, ".inst") ||
		strings.HasPrefix(in.Text, ".byte")
	op, _, _ := strings.Cut(in.Text, " ")
	found := direct.FindStringSubmatch(in.Text)
	indirect := a == perf.AMD64 && strings.Contains(in.Text, "*") // by a register or memory
	switch {
	case strings.HasPrefix(op, "call"), a == perf.ARM64 && (op == "bl" || op == "blr"):
		in.Flow = Call
	case indirect:
	case a == perf.AMD64 && (strings.HasPrefix(op, "j") || strings.HasPrefix(op, "loop")),
		a == perf.ARM64 && (op == "b" || strings.HasPrefix(op, "b.") || strings.HasPrefix(op, "cb") ||
			strings.HasPrefix(op, "tb")):
		in.Flow = Jump
	default:
		found = nil
	}
	if indirect || found == nil {
		if found = relative.FindStringSubmatch(in.Text); found != nil && a == perf.AMD64 {
			in.Text = strings.TrimSpace(in.Text[:strings.IndexByte(in.Text, '#')])
		} else {
			found = nil
		}
	}
	if found != nil {
		in.Target, _ = strconv.ParseUint(found[1], 16, 64)
	}
	return in
}
