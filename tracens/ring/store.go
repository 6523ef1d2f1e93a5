// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 || race

package ring

import (
	"sync/atomic"
	"unsafe"
)

// storeRelease stores a word behind all stores before it.
func storeRelease(word *byte, v uint64) { (*atomic.Uint64)(unsafe.Pointer(word)).Store(v) }
