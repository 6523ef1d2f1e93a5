// SPDX-License-Identifier: Apache-2.0

package testutil

// System call numbers the syscall package does not name.
const (
	sysPerfEventOpen   = 241
	sysPidfdOpen       = 434
	sysPidfdSendSignal = 424
	sysSetns           = 268
)
