// SPDX-License-Identifier: Apache-2.0

//go:build amd64 && !race

package ring

import "unsafe"

// storeRelease stores a word behind all stores before it. On this machine every store is
// one; sync/atomic has only the one that waits for all of them, at twice the price of a
// record. TestAtOnce would tell of a compiler that moves it.
//
//go:noinline
func storeRelease(word *byte, v uint64) { *(*uint64)(unsafe.Pointer(word)) = v }
