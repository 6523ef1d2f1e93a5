// SPDX-License-Identifier: Apache-2.0

package binfile

import "syscall"

// changeTime is when a file was changed last, in nanoseconds since 1970: a time
// that the kernel alone sets.
func changeTime(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }
