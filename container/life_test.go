// SPDX-License-Identifier: Apache-2.0

package container

import "testing"

const second = 1_000_000_000

// lifeTask is a task in namespaces whose numbers are these since a time.
func lifeTask(now, born uint64, number int, cgroup string) *Task {
	t := &Task{Namespaces: Namespaces{PIDNS: 40, MntNS: 60}, Time: now, CgroupPath: cgroup}
	t.Lives[PIDNS], t.Lives[MntNS] = Life{number, born}, Life{number, born}
	return t
}

// TestOfTask: a name holds from the birth of the namespaces to their end, and in
// the container's cgroup.
func TestOfTask(t *testing.T) {
	tab := Table{Host: Namespaces{PIDNS: 4, MntNS: 6}}
	for _, c := range []Container{
		{ID: "first", Name: "first", StartTime: 10 * second},
		{ID: "second", Name: "second", StartTime: 20 * second, CgroupPath: "/b", CgroupID: 2},
		{ID: "third", Name: "third", StartTime: 30 * second},
	} {
		c.Kind, c.Namespaces = KindContainer, Namespaces{PIDNS: 40, MntNS: 60}
		tab.Add(c)
	}
	for _, tc := range []struct {
		what string
		task *Task
		want string
	}{
		{"in the first one's life", lifeTask(15*second, 10*second, 1, "/"), "first"},
		{"it ran before the recording", lifeTask(15*second, 0, 1, "/"), "first"},
		{"a tick before it was started", lifeTask(10*second-second/200, 0, 1, "/"), "first"},
		{"before all", lifeTask(9*second, 0, 1, "/"), ""},
		{"an unknown one between", lifeTask(17*second, 16*second, 2, "/"), ""},
		{"the second one's", lifeTask(25*second, 20*second, 3, "/b"), "second"},
		{"below its cgroup", lifeTask(25*second, 20*second, 3, "/b/x"), "second"},
		{"in another cgroup", lifeTask(25*second, 20*second, 3, "/c"), ""},
		{"in the root cgroup", lifeTask(25*second, 20*second, 3, "/"), ""},
		{"cgroup not known", lifeTask(25*second, 20*second, 3, ""), "second"},
		{"the last", lifeTask(99*second, 30*second, 4, "/"), "third"},
		{"one after it", lifeTask(99*second, 31*second, 5, "/"), ""},
	} {
		got := ""
		if c := tab.OfTask(tc.task); c != nil {
			got = c.Name
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}

// TestNamesOfLives is the same under a definition of one's own.
func TestNamesOfLives(t *testing.T) {
	tab := Table{Host: Namespaces{PIDNS: 4, MntNS: 6}}
	d := mustDefine(t, "vm=pid")
	names := tab.Names(d)
	for i, name := range []string{"first", "second"} {
		tab.Add(Container{Kind: KindContainer, ID: name, Name: name, StartTime: uint64(10*(i+1)) * second,
			Namespaces: Namespaces{PIDNS: 40, MntNS: 60}})
	}
	for _, tc := range []struct {
		task       *Task
		name, text string
	}{
		{lifeTask(15*second, 10*second, 1, ""), "first", "pid:40"},
		{lifeTask(17*second, 16*second, 2, ""), "", "pid:40#2"},
		{lifeTask(25*second, 20*second, 3, ""), "second", "pid:40#3"},
		{&Task{Namespaces: Namespaces{PIDNS: 40}}, "", "pid:40"}, // it may be either
	} {
		id, ok := tab.Identify(d, tc.task)
		if got := names.Name(id, tc.task); !ok || got != tc.name || d.Text(id) != tc.text {
			t.Errorf("%q %q, want %q %q", got, d.Text(id), tc.name, tc.text)
		}
	}
}

// TestSelectLives: a number alone means all that had it, #N one of them.
func TestSelectLives(t *testing.T) {
	id := func(life int) *Identity { return &Identity{Namespaces: Namespaces{PIDNS: 40}, Life: life} }
	for text, want := range map[string][3]bool{
		"pid:40":   {true, true, true},
		"pid:40#1": {true, true, false},
		"pid:40#2": {false, false, true},
		"pid:41":   {},
	} {
		s, ok := Definitions(nil).ParseSelector(text)
		got := [3]bool{s.Matches(id(0)), s.Matches(id(1)), s.Matches(id(2))}
		if !ok || got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"pid:40#0", "pid:40#", "pid:40#x", "mnt:40#2", "pid:#2", "pid:#2#2", "cgroup:#5#2"} {
		if s, ok := Definitions(nil).ParseSelector(text); ok {
			t.Errorf("%q is %+v", text, s)
		}
	}
}
