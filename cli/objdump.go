// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/analysis/profile"
)

// objdumpTime bounds one call. A function takes milliseconds.
const objdumpTime = 20 * time.Second

// disassembler runs the objdump that the flag names, if there is one. It gets
// the bytes of a function and no binary, whose headers it need not trust.
func (f *annotateFlags) disassembler() func(disasm.Arch, []byte, uint64) ([]disasm.Insn, error) {
	program, err := exec.LookPath(f.objdump)
	if f.objdump == "none" || err != nil {
		return nil
	}
	return func(a disasm.Arch, code []byte, addr uint64) ([]disasm.Insn, error) {
		text, err := runObjdump(program, a, code, addr)
		if err != nil {
			return nil, err
		}
		return disasm.ParseObjdump(a, text, addr, uint64(len(code)))
	}
}

func runObjdump(program string, a disasm.Arch, code []byte, addr uint64) ([]byte, error) {
	file, err := os.CreateTemp("", "gantry-code-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(code)
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), objdumpTime)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(disasm.ObjdumpArgs(a, addr), file.Name())...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return nil, fmt.Errorf("%s: %w: %s", program, err, profile.Printable(first))
	}
	return out.Bytes(), nil
}
