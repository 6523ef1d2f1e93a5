// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"fmt"
)

// Namespace is a kind of namespace. The first seven have the indexes of
// PERF_RECORD_NAMESPACES (linux/perf_event.h, *_NS_INDEX).
type Namespace uint8

// The kinds of namespaces.
const (
	NetNS Namespace = iota
	UTSNS
	IPCNS
	PIDNS
	UserNS
	MntNS
	CgroupNS
	TimeNS
	NumNS
)

var namespaceNames = [NumNS]string{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup", "time"}

// String is the kind's name in /proc/PID/ns.
func (n Namespace) String() string {
	if n < NumNS {
		return namespaceNames[n]
	}
	return fmt.Sprintf("Namespace(%d)", uint8(n))
}

// ParseNamespace is the inverse of String.
func ParseNamespace(name string) (Namespace, bool) {
	for n, s := range namespaceNames {
		if s == name {
			return Namespace(n), true
		}
	}
	return 0, false
}

// Namespaces are the inode numbers of a task's namespaces, by kind; 0 is not
// known. Values are comparable.
type Namespaces [NumNS]uint64

// NamespaceSet is a set of kinds.
type NamespaceSet uint16

// NamespacesOf is the set of these kinds.
func NamespacesOf(kinds ...Namespace) NamespaceSet {
	var s NamespaceSet
	for _, n := range kinds {
		s |= 1 << n
	}
	return s
}

// Has reports whether the kind is in the set.
func (s NamespaceSet) Has(n Namespace) bool { return s&(1<<n) != 0 }

// Only is ns with the kinds outside of the set made unknown.
func (ns Namespaces) Only(s NamespaceSet) Namespaces {
	for n := range NumNS {
		if !s.Has(n) {
			ns[n] = 0
		}
	}
	return ns
}

// Or is ns with the unknown kinds taken from o.
func (ns Namespaces) Or(o Namespaces) Namespaces {
	for n, ino := range o {
		if ns[n] == 0 {
			ns[n] = ino
		}
	}
	return ns
}

// Differ reports whether every namespace of the set is known in both and
// differs.
func (ns *Namespaces) Differ(host *Namespaces, s NamespaceSet) bool {
	for n := range NumNS {
		if s.Has(n) && (ns[n] == 0 || host[n] == 0 || ns[n] == host[n]) {
			return false
		}
	}
	return s != 0
}

// MarshalJSON writes {"mnt":4026531841,...}, without the unknown.
func (ns Namespaces) MarshalJSON() ([]byte, error) {
	m := make(map[string]uint64, NumNS)
	for n, ino := range ns {
		if ino != 0 {
			m[namespaceNames[n]] = ino
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes; kinds of the future are
// skipped.
func (ns *Namespaces) UnmarshalJSON(b []byte) error {
	var m map[string]uint64
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*ns = Namespaces{}
	for name, ino := range m {
		if n, ok := ParseNamespace(name); ok {
			ns[n] = ino
		}
	}
	return nil
}
