// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// fixture is a machine in a directory: /proc and cgroup trees as text.
type fixture struct {
	t    *testing.T
	root string
}

func newFixture(t *testing.T, mountinfo string) fixture {
	f := fixture{t, t.TempDir()}
	write(t, f.root+"/proc/1/mountinfo", mountinfo)
	f.proc(1, 1, "0::/\n", 0)
	return f
}

// proc makes a process whose namespaces' numbers are the kind plus ns.
func (f fixture) proc(pid, inner int, cgroup string, ns int) {
	dir := fmt.Sprintf("%s/proc/%d", f.root, pid)
	write(f.t, dir+"/cgroup", cgroup)
	write(f.t, dir+"/stat", fmt.Sprintf("%d (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0", pid, pid*100))
	write(f.t, dir+"/status", fmt.Sprintf("Name:\tx\nPid:\t%d\nUid:\t0\t0\t0\t0\nNSpid:\t%d\t%d\n", pid, pid, inner))
	if err := os.Mkdir(dir+"/ns", 0o755); err != nil {
		f.t.Fatal(err)
	}
	for n := range NumNS {
		if err := os.Symlink(fmt.Sprintf("%v:[%d]", n, 100+int(n)+ns),
			filepath.Join(dir, "ns", n.String())); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f fixture) cgroup(path string, procs string) {
	write(f.t, f.root+path+"/cgroup.procs", procs)
}

func (f fixture) refresh() (*Resolver, []Warning) {
	r, err := NewResolver(&ResolverOptions{Root: f.root, Sources: []Source{}})
	if err != nil {
		f.t.Fatal(err)
	}
	return r, r.Refresh(context.Background())
}

// TestHybridV1Names has a container that its runtime put into v1 hierarchies
// only, as old runtimes do on a hybrid machine.
func TestHybridV1Names(t *testing.T) {
	f := newFixture(t, "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n42 31 0:39 / "+
		"/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
	f.cgroup("/sys/fs/cgroup/unified", "1\n7\n8\n")
	f.cgroup("/sys/fs/cgroup/memory/docker/"+hexA, "7\n8\n")
	f.proc(7, 1, "4:memory:/docker/"+hexA+"\n0::/\n", 1000)
	f.proc(8, 2, "4:memory:/docker/"+hexA+"\n0::/\n", 1000)
	r, warnings := f.refresh()
	if warnings != nil {
		t.Error(warnings)
	}
	c := one(t, r, hexA)
	if c.Runtime != "docker" || c.CgroupID != 0 || c.PID != 7 || c.StartTime != 7e9 || r.Processes()[c] != 2 ||
		len(r.Table().Containers()) != 1 {
		t.Errorf("%+v", c)
	}
	r.Table().Add(Container{ID: hexA, Name: "web"})
	task, err := r.Task(8)
	if err != nil || r.Table().ByNamespaces(task.Namespaces) != c || c.Name != "web" {
		t.Errorf("%+v, %v", task, err)
	}
	def := Default()
	if id, ok := r.Table().Identify(&def, &task); !ok || id.Cgroup != 0 || id.Namespaces[PIDNS] != 1103 {
		t.Errorf("%+v", id)
	}
}

// TestV1 has v1 hierarchies only, with and without that of perf events.
func TestV1(t *testing.T) {
	const memory = "42 31 0:39 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	f := newFixture(t, memory+"43 31 0:40 / /sys/fs/cgroup/perf_event rw - cgroup cgroup rw,perf_event\n")
	f.cgroup("/sys/fs/cgroup/perf_event/docker/"+hexA, "7\n")
	f.cgroup("/sys/fs/cgroup/memory/docker/"+hexA, "7\n")
	f.proc(7, 1, "5:perf_event:/docker/"+hexA+"\n4:memory:/docker/"+hexA+"\n", 1000)
	r, warnings := f.refresh()
	c := one(t, r, hexA)
	if want := inode(t, f.root+"/sys/fs/cgroup/perf_event/docker/"+hexA); warnings != nil ||
		c.CgroupID != CgroupID(want) || c.PID != 7 || r.Processes()[c] != 1 {
		t.Errorf("%+v, %v", c, warnings)
	}
	f = newFixture(t, memory)
	f.cgroup("/sys/fs/cgroup/memory/docker/"+hexA, "7\n")
	f.proc(7, 1, "4:memory:/docker/"+hexA+"\n", 1000)
	r, warnings = f.refresh()
	if len(warnings) != 1 || !errors.Is(warnings[0], ErrNoCgroupIDs) {
		t.Error(warnings)
	}
	if c := one(t, r, hexA); c.PID != 7 || c.Namespaces[MntNS] == 0 {
		t.Errorf("%+v", c)
	}
}

// TestHostTreeInContainer is an agent that has the host's files below a root
// and sees them from a private cgroup namespace.
func TestHostTreeInContainer(t *testing.T) {
	f := newFixture(t, "41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.cgroup("/sys/fs/cgroup/docker/"+hexA+"/sub", "7\n")
	f.proc(7, 1, "0::/../../docker/"+hexA+"/sub\n", 1000)
	r, warnings := f.refresh()
	if warnings != nil {
		t.Error(warnings)
	}
	c := one(t, r, hexA)
	if c.CgroupPath != "/docker/"+hexA || c.PID != 7 || r.Processes()[c] != 1 {
		t.Errorf("%+v", c)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"init_process_pid":7,"init_process_start":3,"config":{"labels":["a=b","io.kubernetes.pod.name=p"]},"cgroup_paths":{"":"/x"}}`), "/x/y")
	f.Add([]byte(`{"pid":7,"process-start-time":3,"cgroup-path":"/a/b"}`), "/b")
	f.Fuzz(func(t *testing.T, state []byte, path string) {
		for _, parse := range []func([]byte) (Info, error){parseRunc, parseCrun} {
			in, err := parse(state)
			if err != nil && (in.PID != 0 || in.Runtime != "") {
				t.Fatalf("%+v and %v", in, err)
			}
			own := ownCgroup(path, in.cgroup)
			if own != "" && path != own && path[:min(len(path), len(own)+1)] != own+"/" {
				t.Fatalf("%q is not above %q", own, path)
			}
		}
		if c, ok := logName(path); ok && (len(c.ID) != idLen || c.Name == "" || c.Pod == "") {
			t.Fatalf("%+v", c)
		}
	})
}

// TestHostNamespaces: where the first process's are closed, the kernel's threads
// tell, and a process that only has their number does not.
func TestHostNamespaces(t *testing.T) {
	for _, kernel := range []bool{true, false} {
		f := newFixture(t, "")
		f.proc(2, 2, "0::/\n", 1000)
		f.proc(3, 3, "0::/\n", 2000)
		for _, n := range []string{"pid", "net"} {
			if err := os.Remove(filepath.Join(f.root, "proc/1/ns", n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("3", filepath.Join(f.root, "proc/self")); err != nil {
			t.Fatal(err)
		}
		want, flags := uint64(2000), 0
		if kernel {
			want, flags = 1000, 0x200000
		}
		write(t, f.root+"/proc/2/stat",
			fmt.Sprintf("2 (kthreadd) S 0 0 0 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 200 0", flags))
		r, err := NewResolver(&ResolverOptions{Root: f.root, Sources: []Source{}})
		if err != nil || r.Table().Host[NetNS] != 100+want {
			t.Errorf("kernel's %v: %v, %v", kernel, r.Table().Host, err)
		}
	}
}

// Annotations are labels, but for the directory that runc puts among them.
func TestAnnotationsAreLabels(t *testing.T) {
	in, err := parseRunc([]byte(`{"init_process_pid":7,"config":{"labels":["app=web","bundle=/x","a=b=c"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := in.Container
	c.annotate([]byte(`{"annotations":{"tier":"front"}}`))
	if len(c.Labels) != 3 || c.Labels["app"] != "web" || c.Labels["a"] != "b=c" || c.Labels["tier"] != "front" {
		t.Errorf("%v", c.Labels)
	}
}
