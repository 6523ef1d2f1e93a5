// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testutil

// feature is a requirement that needs no argument; only Linux has any.
type feature string

// HardwarePMU is a CPU that counts cycles.
const HardwarePMU feature = "a hardware PMU"

func (f feature) String() string { return string(f) }

func (f feature) Missing() string { return "not on this system" }
