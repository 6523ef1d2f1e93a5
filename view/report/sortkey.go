// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

// Key is one column that rows are told apart by: one of the constants, or the
// name of a definition of containers.
type Key string

// The sort keys that every recording has, in the order that an error message
// lists them.
const (
	KeyContainer Key = container.DefContainer
	KeyPod       Key = container.DefPod
	KeyNamespace Key = "namespace"
	KeyImage     Key = "image"
	KeyCgroup    Key = "cgroup"
	KeyComm      Key = "comm"
	KeyPID       Key = "pid"
	KeyTID       Key = "tid"
	KeyCPU       Key = "cpu"
	KeyDSO       Key = "dso"
	KeySym       Key = "sym"
	KeySrcline   Key = "srcline"
	KeySrcfile   Key = "srcfile"
	KeyBPF       Key = "bpf"
	KeyBPFLoader Key = "bpfcontainer"
	KeyEvent     Key = "event"
)

func allKeys() []Key {
	return []Key{KeyContainer, KeyPod, KeyNamespace, KeyImage, KeyCgroup, KeyComm, KeyPID, KeyTID, KeyCPU, KeyDSO,
		KeySym, KeySrcline, KeySrcfile, KeyBPF, KeyBPFLoader, KeyEvent}
}

// keyInfo is what the head of a key's column says.
type keyInfo struct {
	title      string
	field      profile.Fields // zero if not a label, and for a definition
	number     bool
	definition bool
}

func (k Key) info() keyInfo {
	switch k {
	case KeyContainer:
		return keyInfo{title: "Container", field: profile.FieldContainer}
	case KeyPod:
		return keyInfo{title: "Pod", field: profile.FieldPod}
	case KeyNamespace:
		return keyInfo{title: "Namespace", field: profile.FieldNamespace}
	case KeyImage:
		return keyInfo{title: "Image", field: profile.FieldImage}
	case KeyCgroup:
		return keyInfo{title: "Cgroup", field: profile.FieldCgroup}
	case KeyComm:
		return keyInfo{title: "Command", field: profile.FieldComm}
	case KeyPID:
		return keyInfo{title: "Pid", field: profile.FieldPID, number: true}
	case KeyTID:
		return keyInfo{title: "Tid", field: profile.FieldTID, number: true}
	case KeyCPU:
		return keyInfo{title: "CPU", field: profile.FieldCPU, number: true}
	case KeyDSO:
		return keyInfo{title: "Shared Object"}
	case KeySym:
		return keyInfo{title: "Symbol"}
	case KeySrcline:
		return keyInfo{title: "Source:Line"}
	case KeySrcfile:
		return keyInfo{title: "Source File"}
	case KeyBPF:
		return keyInfo{title: "BPF Program"}
	case KeyBPFLoader:
		return keyInfo{title: "BPF Container"}
	case KeyEvent:
		return keyInfo{title: "Event"}
	}
	return keyInfo{title: string(k), definition: true}
}

// label is what the column of a label shows.
func (k Key) label(l *profile.Labels) string {
	switch k {
	case KeyContainer:
		return containerText(l)
	case KeyPod:
		return orHost(l.Pod)
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
	case KeyDSO, KeySym, KeySrcline, KeySrcfile, KeyBPF, KeyBPFLoader, KeyEvent:
		return ""
	}
	id := l.Identities.Under(string(k))
	return orHost(id.Text())
}

// noContainer is shown for what runs outside of any container.
const noContainer = profile.Host

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

func orHost(s string) string {
	if s == "" {
		return noContainer
	}
	return s
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

// ParseKeys reads a list such as "container,dso,sym". It also takes perf's
// longer name "symbol". Beside the constants, keys are the names of definitions,
// of which defs has those that are known; with open, there may be others.
func ParseKeys(list string, defs container.Definitions, open bool) ([]Key, error) {
	var keys []Key
	for name := range strings.SplitSeq(list, ",") {
		k, ok := parseKey(strings.TrimSpace(name), defs, open)
		if !ok {
			return nil, fmt.Errorf("unknown sort key %q: use one or more of %s", name,
				strings.Join(KeyNames(defs), ", "))
		}
		if slices.Contains(keys, k) {
			return nil, fmt.Errorf("sort key %q is given twice: name it once", name)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func parseKey(name string, defs container.Definitions, open bool) (Key, bool) {
	if name == "symbol" {
		return KeySym, true
	}
	known := slices.Contains(allKeys(), Key(name)) || defs.Find(name) != nil || open && container.CheckName(name) == nil
	return Key(name), known
}

// KeyNames lists all keys that ParseKeys knows.
func KeyNames(defs container.Definitions) []string {
	var names []string
	for _, k := range allKeys() {
		names = append(names, string(k))
	}
	for _, name := range defs.Names() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// definitionsOf are the names of the definitions among keys.
func definitionsOf(keys []Key) []string {
	var names []string
	for _, k := range keys {
		if k.info().definition {
			names = append(names, string(k))
		}
	}
	return names
}
