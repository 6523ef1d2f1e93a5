// SPDX-License-Identifier: Apache-2.0

package perf

import "strings"

// HoldsCode reports whether a mapping with this name, if it is executable, holds
// code that its process has generated, and not that of a file. Such names are
// those of memory without a file (perf_event_mmap_event in kernel/events/core.c),
// and of the memfd that .NET maps twice, to write and to run
// (DOTNET_EnableWriteXorExecute).
func HoldsCode[T string | []byte](name T) bool {
	const doubleMapped = "/memfd:doublemapper"
	const deleted = " (deleted)" // as d_path says of every memfd
	switch s := string(name[:min(len(name), len(doubleMapped+deleted)+1)]); s {
	case "//anon", "[heap]", doubleMapped, doubleMapped + deleted:
		return true
	default:
		return strings.HasPrefix(s, "/anon_hugepage") || strings.HasPrefix(s, "/dev/zero")
	}
}
