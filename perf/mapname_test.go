// SPDX-License-Identifier: Apache-2.0

package perf

import "testing"

func TestHoldsCode(t *testing.T) {
	for name, want := range map[string]bool{
		"//anon": true, "[heap]": true, "/anon_hugepage": true, "/anon_hugepage (deleted)": true, "/dev/zero (deleted)": true,
		"/memfd:doublemapper": true, "/memfd:doublemapper (deleted)": true,
		"": false, "//anonymous": false, "[stack]": false, "/bin/true": false, "/memfd:program (deleted)": false,
		"/memfd:doublemapper (deleted)2": false, "/tmp/memfd:doublemapper": false,
	} {
		if got := HoldsCode(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
		raw := []byte(name)
		if n := testing.AllocsPerRun(10, func() { HoldsCode(raw) }); HoldsCode(raw) != want || n != 0 {
			t.Errorf("%q: %v, with %v allocations", raw, !want, n)
		}
	}
}
