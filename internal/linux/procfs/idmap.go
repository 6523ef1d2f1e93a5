// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"fmt"
	"io"
)

// IDRange is a line of /proc/PID/uid_map or gid_map: Count users from Inside on, as the
// user namespace numbers them, are those from Outside on, as that of the reader does.
type IDRange struct{ Inside, Outside, Count uint32 }

// IDMap is all ranges of a user namespace.
type IDMap []IDRange

// UIDMap and GIDMap are those of the user namespace that a process is in.
func (p Proc) UIDMap() (IDMap, error) { return parseFile(p.Path("uid_map"), ParseIDMap) }
func (p Proc) GIDMap() (IDMap, error) { return parseFile(p.Path("gid_map"), ParseIDMap) }

// ParseIDMap reads a map.
func ParseIDMap(r io.Reader) (IDMap, error) {
	var m IDMap
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		var g IDRange
		if _, err := fmt.Sscan(sc.Text(), &g.Inside, &g.Outside, &g.Count); err != nil {
			return nil, fmt.Errorf("range %q: %w", sc.Text(), err)
		}
		m = append(m, g)
	}
	return m, sc.Err()
}

// Inside is the number that an id outside has in the namespace; it is not ok for one that
// has none.
func (m IDMap) Inside(id uint32) (inside uint32, ok bool) {
	for _, g := range m {
		if id >= g.Outside && id-g.Outside < g.Count {
			return g.Inside + id - g.Outside, true
		}
	}
	return 0, false
}

// Outside is the number that an id of the namespace has outside.
func (m IDMap) Outside(id uint32) (outside uint32, ok bool) {
	for _, g := range m {
		if id >= g.Inside && id-g.Inside < g.Count {
			return g.Outside + id - g.Inside, true
		}
	}
	return 0, false
}
