// SPDX-License-Identifier: Apache-2.0

package perf

// Arch is an instruction set whose registers and code gantry understands.
type Arch uint8

// The instruction sets.
const (
	NoArch Arch = iota
	AMD64
	ARM64
)

// ArchOf is the instruction set of a machine that calls itself so (uname -m), as
// the header of a recording says; NoArch for any other.
func ArchOf(machine string) Arch {
	switch machine {
	case "x86_64", "amd64":
		return AMD64
	case "aarch64", "arm64":
		return ARM64
	}
	return NoArch
}

// String is the name that uname -m gives the machine.
func (a Arch) String() string {
	switch a {
	case AMD64:
		return "x86_64"
	case ARM64:
		return "aarch64"
	}
	return "unknown"
}
