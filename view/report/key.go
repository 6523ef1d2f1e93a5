// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Key is one column that rows are told apart by.
type Key uint8

// The sort keys, in the order that an error message lists them.
const (
	KeyContainer Key = iota
	KeyPod
	KeyNamespace
	KeyImage
	KeyCgroup
	KeyComm
	KeyPID
	KeyTID
	KeyCPU
	KeyDSO
	KeySym
	KeyEvent
	numKeys
)

// keyInfo is what --sort calls a key and what the head of its column says.
type keyInfo struct {
	name, title string
	field       profile.Fields // zero if not a label
	number      bool
}

func (k Key) info() keyInfo {
	switch k {
	case KeyContainer:
		return keyInfo{name: "container", title: "Container", field: profile.FieldContainer}
	case KeyPod:
		return keyInfo{name: "pod", title: "Pod", field: profile.FieldPod}
	case KeyNamespace:
		return keyInfo{name: "namespace", title: "Namespace", field: profile.FieldNamespace}
	case KeyImage:
		return keyInfo{name: "image", title: "Image", field: profile.FieldImage}
	case KeyCgroup:
		return keyInfo{name: "cgroup", title: "Cgroup", field: profile.FieldCgroup}
	case KeyComm:
		return keyInfo{name: "comm", title: "Command", field: profile.FieldComm}
	case KeyPID:
		return keyInfo{name: "pid", title: "Pid", field: profile.FieldPID, number: true}
	case KeyTID:
		return keyInfo{name: "tid", title: "Tid", field: profile.FieldTID, number: true}
	case KeyCPU:
		return keyInfo{name: "cpu", title: "CPU", field: profile.FieldCPU, number: true}
	case KeyDSO:
		return keyInfo{name: "dso", title: "Shared Object"}
	case KeySym:
		return keyInfo{name: "sym", title: "Symbol"}
	case KeyEvent:
		return keyInfo{name: "event", title: "Event"}
	}
	return keyInfo{}
}

// label is what the column of a label shows.
func (k Key) label(l *profile.Labels) string {
	switch k {
	case KeyContainer:
		return containerText(l)
	case KeyPod:
		return orDash(l.Pod)
	case KeyNamespace:
		return orDash(l.Namespace)
	case KeyImage:
		return orDash(l.Image)
	case KeyCgroup:
		return orDash(l.Cgroup)
	case KeyComm:
		return orDash(l.Comm)
	case KeyPID:
		return decimal(l.PID)
	case KeyTID:
		return decimal(l.TID)
	case KeyCPU:
		return decimal(l.CPU)
	}
	return ""
}

// noContainer is shown for what runs outside of any container.
const noContainer = "[host]"

func containerText(l *profile.Labels) string {
	switch {
	case l.Container != "":
		return l.Container
	case len(l.ContainerID) > shortID:
		return l.ContainerID[:shortID]
	case l.ContainerID != "":
		return l.ContainerID
	}
	return noContainer
}

// shortID is how much of a container's id the runtimes' own tools show.
const shortID = 12

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func decimal(n int32) string { return strconv.Itoa(int(n)) }

// String is the key as --sort spells it.
func (k Key) String() string { return k.info().name }

// ParseKeys reads a list such as "container,dso,sym". It also takes perf's
// longer name "symbol".
func ParseKeys(list string) ([]Key, error) {
	var keys []Key
	for name := range strings.SplitSeq(list, ",") {
		k, ok := parseKey(strings.TrimSpace(name))
		if !ok {
			return nil, fmt.Errorf("unknown sort key %q: use one or more of %s", name, strings.Join(KeyNames(), ", "))
		}
		if slices.Contains(keys, k) {
			return nil, fmt.Errorf("sort key %q is given twice: name it once", name)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func parseKey(name string) (Key, bool) {
	if name == "symbol" {
		return KeySym, true
	}
	for k := range numKeys {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// KeyNames lists all keys that ParseKeys knows.
func KeyNames() []string {
	names := make([]string, numKeys)
	for k := range numKeys {
		names[k] = k.String()
	}
	return names
}
