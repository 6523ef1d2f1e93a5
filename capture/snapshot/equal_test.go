// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// quietSource is a program that maps all kinds of executable memory, becomes
// what its argument says, says "ready" and waits for the end of its input.
const quietSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RX (PROT_READ | PROT_EXEC)

static void check(long bad, const char *what) { if (bad) { perror(what); exit(1); } }

static pthread_barrier_t named;

static void *sleeper(void *name) {
	prctl(PR_SET_NAME, name);
	if (!strcmp(name, "other-uts"))
		unshare(CLONE_NEWUTS); // not permitted in a container
	pthread_barrier_wait(&named);
	for (;;)
		pause();
}

static int copy(int to) {
	char buf[65536];
	long n;
	int from = open("/proc/self/exe", O_RDONLY);
	if (from < 0)
		from = open("/quiet", O_RDONLY);
	check(from < 0, "open exe");
	while ((n = read(from, buf, sizeof buf)) > 0)
		check(write(to, buf, n) != n, "write");
	close(from);
	return to;
}

static void map_things(void) {
	char name[] = "/tmp/gone-XXXXXX", other[] = "/dev/gone-XXXXXX";
	char *p;
	int fd, id;

	mmap(0, 4096, RX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p = mmap(0, 3 * 4096, RX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	prctl(0x53564d41, 0, p, 4096, "a jit"); // PR_SET_VMA_ANON_NAME, where it is known
	mmap(0, 8192, RX, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p = mmap(0, 2 * 1024 * 1024, RX | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	p = mmap(0, 4096, RX, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
	check(p == MAP_FAILED, "mmap");
	mprotect(sbrk(8192), 4096, RX | PROT_WRITE);
	fd = syscall(SYS_memfd_create, "some code", 0);
	check(fd < 0 || ftruncate(fd, 16384), "memfd");
	mmap(0, 4096, RX, MAP_SHARED, fd, 8192);
	id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0700);
	if (id >= 0) {
		p = shmat(id, 0, SHM_EXEC);
		shmctl(id, IPC_RMID, 0);
	}
	fd = mkstemp(name);
	if (fd < 0)
		fd = mkstemp(other); // with a user namespace /tmp is another user's
	check(fd < 0 || ftruncate(fd, 16384), "file");
	mmap(0, 4096, RX, MAP_PRIVATE, fd, 4096);
	mmap(0, 4096, RX | PROT_WRITE, MAP_PRIVATE, fd, 0);
	unlink(name);
	unlink(other);
}

static int children[20000], forked;

static void fork_many(int n) {
	while (forked < n) {
		int pid = fork();
		check(pid < 0, "fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		children[forked++] = pid;
	}
}

static void kill_all(void) {
	for (int i = 0; i < forked; i++)
		kill(children[i], SIGKILL);
	while (wait(0) > 0)
		;
}

int main(int argc, char **argv) {
	const char *how = argc > 1 ? argv[1] : "";
	char *as[] = { argv[0], "plain", 0 };
	pthread_t t;
	int fd;

	if (!strcmp(how, "memfd")) {
		fd = copy(syscall(SYS_memfd_create, "program", 0));
		fexecve(fd, as, environ);
		check(1, "fexecve");
	}
	if (!strcmp(how, "deleted")) {
		fd = copy(open(argv[2], O_CREAT | O_WRONLY, 0700));
		close(fd);
		as[1] = "unlink";
		as[0] = argv[2];
		execv(argv[2], as);
		check(1, "execv");
	}
	if (!strcmp(how, "unlink"))
		check(unlink(argv[0]), "unlink");
	if (!strcmp(how, "chroot")) {
		check(chroot(argv[2]) || chdir("/"), "chroot");
		execv("/quiet", as);
		check(1, "execv");
	}
	if (!strcmp(how, "threads")) {
		pthread_barrier_init(&named, 0, 4);
		pthread_create(&t, 0, sleeper, "sleeper");
		pthread_create(&t, 0, sleeper, "other (uts) )");
		pthread_create(&t, 0, sleeper, "other-uts");
		pthread_barrier_wait(&named);
		if (argc > 2) {
			puts("ready");
			fflush(stdout);
			pthread_exit(0);
		}
	}
	map_things();
	if (!strcmp(how, "fork"))
		fork_many(atoi(argv[2]));
	puts("ready");
	fflush(stdout);
	while (read(0, &fd, 1) > 0)
		;
	if (!strcmp(how, "fork"))
		kill_all();
	return 0;
}
`

func quietProgram(t testing.TB) string {
	return testutil.CompileC(t, quietSource, "-static", "-pthread")
}

func newBPF(t testing.TB) *BPF {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.BTF, testutil.Kernel("5.17"))
	b, err := NewBPF(procfs.FS{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// found is what a snapshot says of some processes.
type found struct {
	*taken
	tasks   map[int32]Task // by tid
	cgroups cgroupIDs
	ids     map[string][]byte // build-ids by device and inode
}

func takeAll(t testing.TB, s Source, scope Scope) *found {
	t.Helper()
	f := &found{tasks: make(map[int32]Task), ids: make(map[string][]byte)}
	if err := f.cgroups.init(procfs.FS{}); err != nil {
		t.Fatal(err)
	}
	f.taken = takeWanted(t, s, scope, func(k *Task) bool {
		f.tasks[k.TID] = *k
		return true
	})
	return f
}

// compare compares what a snapshot says of a process that does nothing with
// what /proc says, field by field.
func (f *found) compare(t *testing.T, pid int) {
	t.Helper()
	proc := procfs.FS{}.Proc(pid)
	tids, err := proc.Tasks()
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range tids {
		f.compareTask(t, pid, proc.Task(tid))
	}
	from := proc
	if st, err := proc.Stat(); err != nil || st.State == 'Z' {
		from = procfs.FS{}.Proc(tids[1])
	}
	want := f.wantMaps(t, from)
	got := f.maps[int32(pid)]
	for i := range max(len(want), len(got)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = mapText(&got[i])
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("process %d: mapping %d is\n%s, in /proc\n%s", pid, i, g, w)
		}
	}
}

func (f *found) compareTask(t *testing.T, pid int, task procfs.Proc) {
	t.Helper()
	st, err := task.Stat()
	if err != nil {
		t.Fatal(err)
	}
	tid := int32(task.PID())
	got, ok := f.tasks[tid]
	if !ok {
		t.Errorf("thread %d of %d is missing", tid, pid)
		return
	}
	parent := st.PPID
	if int(tid) != pid {
		parent = pid
	}
	fork := f.forks[tid]
	if fork.PID != int32(pid) || fork.PPID != int32(parent) || fork.PTID != int32(parent) ||
		fork.Misc&perf.MiscForkExec == 0 {
		t.Errorf("thread %d: FORK %+v, want parent %d", tid, fork, parent)
	}
	if got.PPID != int32(st.PPID) || got.Comm != st.Comm || f.comms[tid] != st.Comm ||
		got.Zombie != (st.State == 'Z') || got.Kernel != st.KernelThread() ||
		got.Start/uint64(procfs.Ticks) != st.StartTime {
		t.Errorf("thread %d: %+v, COMM %q, in /proc %+v", tid, got, f.comms[tid], st)
	}
	for i, name := range linkNames() {
		if want, _ := task.Namespace(name); got.Namespaces[i].Ino != want {
			t.Errorf("thread %d: %s namespace %d, in /proc %d", tid, name, got.Namespaces[i].Ino, want)
		}
	}
	if want, _ := task.Namespace("time"); got.TimeNS != want {
		t.Errorf("thread %d: time namespace %d, in /proc %d", tid, got.TimeNS, want)
	}
	if links, leader := f.ns[tid], f.ns[int32(pid)]; links != nil && !slices.Equal(links, got.Namespaces[:]) ||
		links == nil && leader != nil && !slices.Equal(leader, got.Namespaces[:]) {
		t.Errorf("thread %d: NAMESPACES %v, process %v, want %v", tid, links, leader, got.Namespaces)
	}
	if want := f.cgroups.of(task); want != 0 && got.Cgroup != want {
		t.Errorf("thread %d: cgroup %d, in /proc %d", tid, got.Cgroup, want)
	}
}

// mapText is a mapping in one line.
func mapText(m *perf.Mmap2) string {
	return fmt.Sprintf("%x-%x prot %d shared %v offset %x dev %d:%d inode %d %s id %x",
		m.Addr, m.Addr+m.Len, m.Prot, m.Flags&syscall.MAP_SHARED != 0, m.PgOff, m.Maj, m.Min, m.Ino, m.Filename,
		m.BuildID)
}

// wantMaps are the executable mappings as /proc has them, in the form of
// mapText. Paths are as the process sees them, and names that it gave to its
// memory are left out, as in the records of the kernel.
func (f *found) wantMaps(t *testing.T, proc procfs.Proc) []string {
	t.Helper()
	root, err := proc.RootLink()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	err = proc.Maps(procfs.NewMapsScanner(), func(m *procfs.Mapping) error {
		if m.Prot&procfs.ProtExec == 0 || m.Path == "[vsyscall]" {
			return nil
		}
		g := perf.Mmap2{
			Addr: m.Start, Len: m.End - m.Start, Prot: uint32(m.Prot), Flags: shareFlags(m.Shared), PgOff: m.Offset,
			Maj: m.DevMajor, Min: m.DevMinor, Ino: m.Inode, Filename: m.Path, BuildID: f.mappedID(proc, m),
		}
		if m.Path == "" || strings.HasPrefix(m.Path, "[anon:") {
			g.Filename = "//anon"
		} else if root != "/" {
			g.Filename = strings.TrimPrefix(m.Path, root)
		}
		list = append(list, mapText(&g))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// mappedID reads the build-id of what is mapped, by itself.
func (f *found) mappedID(proc procfs.Proc, m *procfs.Mapping) []byte {
	if m.Inode == 0 {
		return nil
	}
	key := fmt.Sprint(m.DevMajor, m.DevMinor, m.Inode)
	if id, known := f.ids[key]; known {
		return id
	}
	file, err := os.Open(proc.Path(fmt.Sprintf("map_files/%x-%x", m.Start, m.End)))
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	id, err := buildid.FromFile(file, info.Size())
	if err == nil {
		f.ids[key] = id.Bytes()
	} else {
		f.ids[key] = nil
	}
	return f.ids[key]
}

// quietHost starts the program on this host in many ways.
func quietHost(t *testing.T) map[string]int { return startQuiet(t, quietProgram(t)) }

func startQuiet(t *testing.T, prog string) map[string]int {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "quiet"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{
		"plain":       startProgram(t, prog).Process.Pid,
		"memfd":       startProgram(t, prog, "memfd").Process.Pid,
		"deleted":     startProgram(t, prog, "deleted", filepath.Join(dir, "deleted")).Process.Pid,
		"chroot":      startProgram(t, prog, "chroot", root).Process.Pid,
		"threads":     startProgram(t, prog, "threads").Process.Pid,
		"leader gone": startProgram(t, prog, "threads", "exit").Process.Pid,
	}
	c := exec.Command(prog)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
	}
	pids["user namespace"] = startCmd(t, c).Process.Pid
	return pids
}

// quietContainers starts it in runc's containers.
func quietContainers(t *testing.T) map[string]int {
	prog := quietProgram(t)
	pids := make(map[string]int)
	for name, spec := range map[string]testutil.ContainerSpec{
		"directory": {},
		"overlay":   {Overlay: true},
		"two":       {Overlay: true, Namespaces: []string{"pid", "mount", "ipc", "uts", "network", "cgroup", "user"}},
	} {
		spec.Files = map[string]string{"/opt/some where/quiet": prog}
		spec.Args, spec.Ready = []string{"/opt/some where/quiet", "threads"}, "ready"
		pids["container "+name] = testutil.StartContainer(t, spec).PID
	}
	return pids
}

func TestEqualsProc(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	sources := map[string]Source{"bpf": newBPF(t), "query": monotonic(), "text": &Proc{Clock: 1, TextMaps: true}}
	for kind, start := range map[string]func(*testing.T) map[string]int{"host": quietHost,
		"containers": quietContainers} {
		t.Run(kind, func(t *testing.T) {
			pids := start(t)
			for name, s := range sources {
				t.Run(name, func(t *testing.T) {
					var scope Scope
					for _, pid := range pids {
						scope.PIDs = append(scope.PIDs, pid)
					}
					got := takeAll(t, s, scope)
					for what, pid := range pids {
						t.Run(strings.ReplaceAll(what, " ", "-"), func(t *testing.T) { got.compare(t, pid) })
					}
				})
			}
		})
	}
}

// manyTasks is how many processes there are in the test of many, and with
// GANTRY_TEST_LONG=1 in its environment.
const manyTasks, manyTasksLong = 500, 10000

func TestManyEqualProc(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	bpf := newBPF(t)
	n := manyTasks
	if os.Getenv("GANTRY_TEST_LONG") != "" {
		n = manyTasksLong
	}
	cmd := testutil.StartReady(t, exec.Command(quietProgram(t), "fork", strconv.Itoa(n)))
	parent := cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(children))
	if len(pids) != n {
		t.Fatalf("%d children, want %d", len(pids), n)
	}
	got := takeAll(t, bpf, Scope{All: true})
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if got.compare(t, pid); t.Failed() {
			return // one is enough
		}
	}
}
