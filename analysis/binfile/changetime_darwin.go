// SPDX-License-Identifier: Apache-2.0

package binfile

import "syscall"

// changeTime is when a file was changed last, in nanoseconds since 1970.
func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }
