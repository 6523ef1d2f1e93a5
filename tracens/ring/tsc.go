// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package ring

// tsc is for CPUs of x86 only.
func tsc() uint64 { return 0 }

const hasTSC = false
