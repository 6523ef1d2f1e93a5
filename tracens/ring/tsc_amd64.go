// SPDX-License-Identifier: Apache-2.0

package ring

// tsc is the time stamp counter of the CPU.
func tsc() uint64

const hasTSC = true
