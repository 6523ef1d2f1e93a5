// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"strings"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
)

// Why a frame has no name, as profile.Frame.Source has it.
const (
	// Unmapped: nothing that the recording knows of was mapped there.
	Unmapped = "no mapping"
	// NoFile: the memory shows no file, and no perf map tells what was
	// generated there.
	NoFile = "memory without a file"
	// NoCode: the perf map or jitdump of generated code was not found.
	NoCode = "generated code without a perf map"
	// Deleted, Missing: the binary is not there any more, or never was here.
	Deleted = "binary deleted"
	Missing = "binary missing"
	// OtherID: what is at its path is another binary.
	OtherID = "build-id differs"
	// Unreadable, NotBinary: it could not be opened, or not be understood.
	Unreadable = "binary not readable"
	NotBinary  = "no valid ELF file"
	// Stripped: it has no symbols, and there are no separate ones.
	Stripped = "binary without symbols"
	// Outside: its symbols do not cover the address.
	Outside = "outside of all symbols"
	// HiddenKernel, NoKernel: the kernel's symbols may not be read, or are
	// those of another kernel.
	HiddenKernel = "kernel symbols hidden"
	NoKernel     = "kernel symbols missing"
)

// whyNameless says why a place has no name.
func (s *Session) whyNameless(p *frameSource) string {
	switch {
	case p.kernel:
		return s.whyNamelessKernel()
	case p.bin == nil:
		return Unmapped
	case p.bin.obj != nil && p.bin.obj.HasSymbols():
		return Outside
	case p.bin.obj != nil:
		return Stripped
	case p.bin.err == nil:
		return NoFile
	}
	name := p.bin.file.Path
	switch symbol.ReasonOf(p.bin.err) {
	case symbol.NotFound:
		switch {
		case timeline.IsPerfMap(name):
			return NoCode
		case strings.HasSuffix(name, " (deleted)"):
			return Deleted
		}
		return Missing
	case symbol.Mismatch:
		return OtherID
	case symbol.Malformed, symbol.NotELF, symbol.Truncated:
		return NotBinary
	}
	return Unreadable
}

func (s *Session) whyNamelessKernel() string {
	switch k := &s.kernel; {
	case k.table != nil:
		return Outside
	case errors.Is(k.err, symbol.ErrRestricted):
		return HiddenKernel
	}
	return NoKernel
}
