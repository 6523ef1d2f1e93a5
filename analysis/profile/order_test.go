// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"testing"
	"time"
)

// small makes a profile of two containers; the leaf of one is in the kernel.
func small(order ...string) *Profile {
	b := NewBuilder()
	*b.Meta() = Meta{Hostname: "node1", Start: time.Unix(1000, 0), Duration: 2 * time.Second, Fields: FieldContainer | FieldComm}
	clock := b.Event(EventInfo{Name: "cpu-clock", Unit: "nanoseconds", Freq: 1000})
	main := b.Frame(Frame{Name: "main", DSO: "app", Path: "/bin/app", BuildID: "ab12"})
	for _, container := range order {
		leaf := b.Frame(Frame{Name: container + "_hot", DSO: "app", Path: "/bin/app", BuildID: "ab12"})
		read := b.Frame(Frame{Name: "vfs_read", DSO: "[kernel.kallsyms]", Kernel: true})
		l := b.Labels(Labels{Container: container, Comm: "app"})
		b.Add(l, b.Stack([]FrameID{leaf, main}), clock, 3, 3e6)
		b.Add(l, b.Stack([]FrameID{read, leaf, main}), clock, 1, 1e6)
	}
	b.Lost(LostCount{Container: order[0], CPU: -1, Samples: 2})
	return b.Profile()
}

func folded(t *testing.T, p *Profile, o *FoldedOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteFolded(&out, p, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The order in which samples came must not show.
func TestOrderDoesNotShow(t *testing.T) {
	ab, ba := small("web", "db"), small("db", "web")
	if a, b := folded(t, ab, nil), folded(t, ba, nil); a != b {
		t.Errorf("a+b:\n%sb+a:\n%s", a, b)
	}
}
