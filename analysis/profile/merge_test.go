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

func TestMerge(t *testing.T) {
	a, b := small("web"), small("db", "web")
	b.Meta.Start = b.Meta.Start.Add(5 * time.Second)
	b.Meta.Hostname = "node2"
	b.Events[0].Freq = 99
	m := Merge(a, b)

	want := "db;app;main;db_hot 3\n" +
		"db;app;main;db_hot;vfs_read_[k] 1\n" +
		"web;app;main;web_hot 6\n" +
		"web;app;main;web_hot;vfs_read_[k] 2\n"
	if got := folded(t, m, nil); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if e := m.Events[0]; len(m.Events) != 1 || e.Samples != 12 || e.Value != 12e6 || e.Freq != 0 {
		t.Errorf("events: got %+v", m.Events)
	}
	if got := m.TotalLost(""); got != 4 {
		t.Errorf("lost: got %d, want 4", got)
	}
	if !m.Meta.Start.Equal(a.Meta.Start) || m.Meta.Duration != 7*time.Second || m.Meta.Hostname != "" {
		t.Errorf("meta: got %+v", m.Meta)
	}
	if got := Merge(); got.NumSamples() != 0 || got.NumStacks() != 1 {
		t.Errorf("merge of nothing: %d samples, %d stacks", got.NumSamples(), got.NumStacks())
	}
}

// The order in which samples came must not show.
func TestMergeOrder(t *testing.T) {
	ab, ba := Merge(small("web"), small("db")), Merge(small("db"), small("web"))
	if a, b := folded(t, ab, nil), folded(t, ba, nil); a != b {
		t.Errorf("a+b:\n%sb+a:\n%s", a, b)
	}
}
