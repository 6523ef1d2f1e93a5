// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
)

// objdumpTime bounds one call. A function takes milliseconds.
const objdumpTime = 20 * time.Second

// defaultObjdump is that of binutils, for which it is no error if there is none.
const defaultObjdump = "objdump"

// disassembler runs the objdump that the flag names, if there is one. It gets
// the bytes of a function and no binary, whose headers it need not trust.
// After the first that does not end in time it is asked no more.
func (f *annotateFlags) disassembler() (func(perf.Arch, []byte, uint64) ([]disasm.Insn, error), error) {
	if f.objdump == "none" {
		return nil, nil
	}
	program, err := exec.LookPath(f.objdump)
	switch {
	case err != nil && f.objdump == defaultObjdump:
		return nil, nil
	case err != nil:
		return nil, hint.Wrap(fmt.Errorf("--objdump: %w", err), "name an objdump, or none")
	}
	var slow error
	return func(a perf.Arch, code []byte, addr uint64) ([]disasm.Insn, error) {
		if slow != nil {
			return nil, slow
		}
		text, err := runObjdump(program, a, code, addr)
		if errors.Is(err, context.DeadlineExceeded) {
			slow = err
		}
		if err != nil {
			return nil, err
		}
		return disasm.ParseObjdump(a, text, addr, uint64(len(code)))
	}, nil
}

func runObjdump(program string, a perf.Arch, code []byte, addr uint64) ([]byte, error) {
	// A file without a name: however gantry ends, nothing stays of it.
	file, err := os.CreateTemp("", "gantry-code-*")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	if _, err := file.Write(code); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), objdumpTime)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(disasm.ObjdumpArgs(a, addr), "/dev/fd/3")...)
	cmd.ExtraFiles = []*os.File{file} // it gets number 3
	cmd.WaitDelay = time.Second       // what it has started may hold its output open
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := errors.Join(cmd.Run(), ctx.Err()); err != nil {
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return nil, fmt.Errorf("%s: %w: %s", program, err, profile.Printable(first))
	}
	return out.Bytes(), nil
}
