// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// jail is a directory that processes have for their root. secret is outside.
type jail struct {
	root, secret string
}

func newJail(t *testing.T) *jail {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	dir := t.TempDir()
	j := &jail{filepath.Join(dir, "root"), filepath.Join(dir, "secret")}
	prog := testutil.CompileC(t,
		"#include <unistd.h>\nint main(void) { char c; write(1, \"r\", 1); while (read(0, &c, 1) > 0); return 0; }\n",
		"-static")
	text, err := os.ReadFile(prog)
	if err := errors.Join(err, os.MkdirAll(j.tmp(""), 0o755), os.WriteFile(filepath.Join(j.root, "wait"), text, 0o755),
		os.WriteFile(j.secret, []byte("10 10 of_the_host\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *jail) tmp(name string) string { return filepath.Join(j.root, "tmp", name) }

// start starts a process in the jail, which is over when end returns.
func (j *jail) start(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("/wait")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: j.root}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { in.Close(); cmd.Wait() })
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

// startJITCollector makes a collector for which everything is a container's.
func startJITCollector(t *testing.T) *Collector {
	t.Helper()
	k := New(&Options{Store: t.TempDir()}, procfs.FS{})
	t.Cleanup(k.Close)
	k.hostMnt, k.jit.hostMnt = 1, 1
	return k
}

func memoryOf(pid int) (*binaryKey, mappedAt) {
	return &binaryKey{FileKey: FileKey{Path: anonMemory}}, mappedAt{pid: pid, mnt: 2}
}

// keptText is what was kept of a process, "" if nothing was.
func keptText(t *testing.T, k *Collector, pid int) string {
	t.Helper()
	for _, c := range k.jit.collected {
		if int(c.pid) != pid {
			continue
		}
		f, size, err := k.store.LookupJIT(c.id)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := io.ReadAll(io.NewSectionReader(f, 0, size))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return ""
}

// Whatever is in the place of a perf map, only a regular file with names in it is
// read, and what is not is told. Nothing outside of the root is.
func TestHostilePerfMaps(t *testing.T) {
	j := newJail(t)
	const text = "1000 20 f\n"
	write := func(name string) error { return os.WriteFile(name, []byte(text), 0o600) }
	for _, tt := range []struct {
		name string
		make func(name string) error
		kept string
		why  error
	}{
		{"a map", write, text, nil},
		{"none", func(string) error { return nil }, "", nil},
		{"empty", func(name string) error { return os.WriteFile(name, nil, 0o600) }, "", nil},
		{"a link out", func(name string) error { return os.Symlink(j.secret, name) }, "", sys.ErrNotRegular},
		{"a relative link out", func(name string) error { return os.Symlink("../../secret", name) }, "",
			sys.ErrNotRegular},
		{"a link to a map", func(name string) error {
			return errors.Join(write(j.tmp("other")),
				os.Symlink("other", name))
		}, "", sys.ErrNotRegular},
		{"a pipe", func(name string) error { return syscall.Mkfifo(name, 0o666) }, "", sys.ErrNotRegular},
		{"a device", func(name string) error { return syscall.Mknod(name, syscall.S_IFCHR|0o666, 5<<8) }, "",
			sys.ErrNotRegular},
		{"a directory", func(name string) error { return os.Mkdir(name, 0o755) }, "", sys.ErrNotRegular},
		{"something else", func(name string) error {
			return os.WriteFile(name, []byte("root:*:20000:0:99999:7:::\n"),
				0o600)
		}, "", errNotJIT},
		{"gigabytes", func(name string) error { return errors.Join(write(name), os.Truncate(name, 1<<40)) }, "",
			errTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := startJITCollector(t)
			pid, end := j.start(t)
			name := j.tmp(fmt.Sprintf("perf-%d.map", pid))
			if err := tt.make(name); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(name)
			k.enqueue(memoryOf(pid))
			k.Start()
			k.Wait()
			end()
			sum, _ := k.Result()
			if got := keptText(t, k, pid); got != tt.kept || sum.Code != len(k.jit.collected) {
				t.Errorf("kept %q, want %q", got, tt.kept)
			}
			want := ""
			if tt.why != nil {
				want = "generated code: " + tt.why.Error()
			}
			if n := len(sum.Missing); tt.why == nil && n > 0 || tt.why != nil && (n != 1 || sum.Missing[want] != 1) {
				t.Errorf("missing %v, want %q", sum.Missing, want)
			}
		})
	}
}

// A /tmp that leads elsewhere is not followed.
func TestPerfMapBehindLink(t *testing.T) {
	j := newJail(t)
	k := startJITCollector(t)
	pid, _ := j.start(t)
	outside := filepath.Dir(j.root)
	if err := errors.Join(os.Remove(j.tmp("")), os.Symlink(outside, j.tmp("")),
		os.WriteFile(filepath.Join(outside, fmt.Sprintf("perf-%d.map", pid)), []byte("1000 20 f\n"),
			0o600)); err != nil {
		t.Fatal(err)
	}
	k.enqueue(memoryOf(pid))
	k.Start()
	k.Wait()
	if sum, _ := k.Result(); len(k.jit.collected) != 0 || len(sum.Missing) != 1 {
		t.Errorf("kept %v, missing %v", k.jit.collected, sum.Missing)
	}
}

// The last that a process wrote is kept, though process, name and root are gone
// by then, and another file that it has put in the place.
func TestPerfMapOfEnded(t *testing.T) {
	j := newJail(t)
	for _, tt := range []struct {
		name string
		last func(name string) error // what happens at the end
		want string
	}{
		{"more", func(name string) error { return os.WriteFile(name, []byte("1000 20 f\n2000 20 late\n"), 0o600) },
			"1000 20 f\n2000 20 late\n"},
		{"removed", os.Remove, "1000 20 f\n"},
		{"replaced", func(name string) error {
			return errors.Join(os.Remove(name), os.WriteFile(name, []byte("1000 20 g\n"), 0o600))
		}, "1000 20 g\n"},
		{"a pipe in its place", func(name string) error {
			return errors.Join(os.Remove(name),
				syscall.Mkfifo(name, 0o666))
		}, "1000 20 f\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := startJITCollector(t)
			pid, end := j.start(t)
			name := j.tmp(fmt.Sprintf("perf-%d.map", pid))
			if err := os.WriteFile(name, []byte("1000 20 f\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(name)
			k.enqueue(memoryOf(pid))
			g, _ := k.jit.next()
			k.jit.inspect(nil, g)
			if err := tt.last(name); err != nil {
				t.Fatal(err)
			}
			end()
			k.jit.exited(int32(pid), int32(pid)+1)
			if len(k.jit.waiting) != 0 {
				t.Error("a process is over whose first thread has not ended")
			}
			k.jit.exited(int32(pid), int32(pid))
			k.Start()
			k.Wait()
			if got := keptText(t, k, pid); got != tt.want {
				t.Errorf("kept %q, want %q", got, tt.want)
			}
			if k.jit.open != 0 || len(k.jit.all) != 0 {
				t.Errorf("%d are open, %d remembered", k.jit.open, len(k.jit.all))
			}
		})
	}
}

// When the first thread has ended, others may go on, and one that executes a program
// does so with its number. What is on its way out is looked at again.
func TestOverWhenTheLastHasEnded(t *testing.T) {
	const pid, exiting = 77, 0x40c // PF_EXITING and others
	for _, tt := range []struct {
		name    string
		state   byte
		flags   int
		threads int
		start   int
		over    bool
		ended   bool // it is to be looked at again
	}{
		{"gone", 0, 0, 0, 0, true, false},
		{"nobody has looked yet", 'Z', exiting, 1, 5, true, false},
		{"on its way out", 'R', exiting, 1, 5, true, false},
		{"others go on", 'Z', exiting, 2, 5, false, true},
		{"all are on their way out", 'R', exiting, 3, 5, false, true},
		{"a thread has executed", 'S', 0x400000, 1, 5, false, false},
		{"and has threads", 'S', 0x400000, 3, 5, false, false},
		{"another process", 'S', 0x400000, 1, 6, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "proc", fmt.Sprint(pid))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%d (java) %c 1 1 1 0 -1 %d 0 0 0 0 0 0 0 0 20 0 %d 0 %d 0 0\n", pid, tt.state,
				tt.flags, tt.threads, tt.start)
			if tt.state != 0 {
				if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := startJITCollector(t).jit
			c.fs = procfs.New(root)
			g := &jitProcess{pid: pid, nsPID: 1, start: 5, retryPause: maxRetryPause, retryRound: maxRetryPause,
				retrying: true}
			c.all[pid], c.retries = g, []*jitProcess{g}
			c.exited(pid, pid)
			if over := c.over(g); over != tt.over || g.ended != tt.ended && !over {
				t.Fatalf("over %t, to be looked at again %t", over, g.ended)
			}
			if tt.over {
				return
			}
			c.next()
			c.inspect(nil, g)
			c.nextRound()
			if again := len(c.waiting) == 1; again != tt.ended {
				t.Errorf("looked at again in the next round: %t", again)
			}
		})
	}
}

// executesSource executes itself from its second thread, then waits for the end of
// its input.
const executesSource = `
#include <pthread.h>
#include <unistd.h>

static char **args;

static void *run(void *x) {
	execl(args[0], args[0], "again", (char *)0);
	return x;
}

int main(int argc, char **argv) {
	pthread_t t;
	char c;

	if (argc > 1) {
		write(1, "r", 1);
		while (read(0, &c, 1) > 0)
			;
		return 0;
	}
	args = argv;
	pthread_create(&t, 0, run, 0);
	for (;;)
		pause();
}
`

// The real thing of it: the process goes on after the EXIT of its first thread.
func TestGeneratorThatExecutedFromAThread(t *testing.T) {
	cmd := exec.Command(testutil.CompileC(t, executesSource, "-pthread"))
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c := startJITCollector(t).jit
	g := &jitProcess{pid: int32(cmd.Process.Pid)}
	c.all[g.pid] = g
	c.exited(g.pid, g.pid)
	if c.over(g) || g.ended {
		t.Error("it is taken for ended")
	}
	cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != io.EOF { // its files are closed once it is on its way out
		t.Fatal(err)
	}
	c.exited(g.pid, g.pid)
	if !c.over(g) {
		t.Error("it is not taken for ended")
	}
}

// A map that comes late is found, by looking again and again.
func TestPerfMapComesLate(t *testing.T) {
	j := newJail(t)
	k := startJITCollector(t)
	pid, end := j.start(t)
	c := k.jit
	k.enqueue(memoryOf(pid))
	look := func() {
		g, _ := c.next()
		c.inspect(nil, g)
	}
	look()
	c.nextRound()
	look()
	if err := os.WriteFile(j.tmp(fmt.Sprintf("perf-%d.map", pid)), []byte("1000 20 f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.nextRound(); len(c.waiting) != 0 {
		t.Error("looked for again without a pause")
	}
	c.nextRound()
	look()
	if len(c.retries) != 0 || c.all[int32(pid)].perfMap == nil {
		t.Errorf("%+v", c.all[int32(pid)])
	}
	if err := os.Remove(j.tmp(fmt.Sprintf("perf-%d.map", pid))); err != nil {
		t.Fatal(err)
	}
	end()
	k.Start()
	k.Wait()
	if got := keptText(t, k, pid); got != "1000 20 f\n" {
		t.Errorf("kept %q", got)
	}
}

// A map that grows while it is copied is copied up to where it was.
func TestGrowingPerfMap(t *testing.T) {
	k := startJITCollector(t)
	name := filepath.Join(t.TempDir(), "perf-1.map")
	line := strings.Repeat("1000 20 f\n", 1<<10)
	if err := os.WriteFile(name, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := make(chan bool)
	go func() {
		defer close(done)
		for range 1 << 9 {
			io.WriteString(f, line)
		}
	}()
	left := k.jit.left.Load()
	for range 10 {
		id, err := k.jit.add(nil, f, false)
		if err != nil {
			t.Fatal(err)
		}
		kept, size, err := k.store.LookupJIT(id)
		if err != nil {
			t.Fatal(err)
		}
		kept.Close()
		if left -= size; k.jit.left.Load() != left || size%10 != 0 && size < int64(len(line)) {
			t.Errorf("%d bytes were kept, %d counted", size, left-k.jit.left.Load())
		}
	}
	<-done
	k.jit.left.Store(5)
	if _, err := k.jit.add(nil, f, false); !errors.Is(err, errTooMuch) {
		t.Errorf("beyond the limit of all: %v", err)
	}
}

// Only so many descriptors are held; the rest is read at the end, if it is there.
func TestCodeBounds(t *testing.T) {
	j := newJail(t)
	k := startJITCollector(t)
	k.jit.maxOpen = 1
	var ends []func()
	var pids []int
	for range 3 {
		pid, end := j.start(t)
		if err := os.WriteFile(j.tmp(fmt.Sprintf("perf-%d.map", pid)), fmt.Appendf(nil, "1000 20 f%d\n", pid),
			0o600); err != nil {
			t.Fatal(err)
		}
		pids, ends = append(pids, pid), append(ends, end)
		k.enqueue(memoryOf(pid))
		g, _ := k.jit.next()
		k.jit.inspect(nil, g)
	}
	if k.jit.open != 1 {
		t.Errorf("%d are open", k.jit.open)
	}
	ends[0]()
	ends[1]()
	k.Start()
	k.Wait()
	for i, want := range []bool{true, false, true} {
		if got := keptText(t, k, pids[i]); (got != "") != want {
			t.Errorf("process %d: %q", i, got)
		}
	}
	if sum, _ := k.Result(); len(sum.Missing) != 1 || sum.Missing["generated code: "+errTooManyFiles.Error()] != 1 {
		t.Errorf("missing %v", sum.Missing)
	}
	c := startJITCollector(t).jit
	for pid := range maxJITProcesses + 1 {
		c.enqueue(memoryOf(pid + 1<<23))
	}
	if len(c.all) != maxJITProcesses || c.missing["generated code: "+errTooManyFiles.Error()] != 1 {
		t.Errorf("%d are remembered, missing %v", len(c.all), c.missing)
	}
}

// A jitdump file is known by what is mapped, and must be one.
func TestHostileDumps(t *testing.T) {
	j := newJail(t)
	head := perf.NativeOrder.AppendUint32(nil, jitdumpMagic)
	mounts, err := procfs.FS{}.Self().Mounts()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(mounts, func(m procfs.Mount) bool { return m.Point == "/proc" })
	if at < 0 {
		t.Fatal("/proc is not mounted")
	}
	dev := mounts[at] // of a file system that no program serves
	for _, tt := range []struct {
		name string
		make func(name string) error
		kept bool
		why  error
	}{
		{"a dump", func(name string) error { return os.WriteFile(name, head, 0o600) }, true, nil},
		{"something else", func(name string) error {
			return os.WriteFile(name, []byte("root:*:20000:0:99999:7:::\n"),
				0o600)
		}, false, errNotJIT},
		{"a link out", func(name string) error { return os.Symlink(j.secret, name) }, false, errGone},
		{"a pipe", func(name string) error { return syscall.Mkfifo(name, 0o666) }, false, sys.ErrNotRegular},
		{"gigabytes", func(name string) error {
			return errors.Join(os.WriteFile(name, head, 0o600),
				os.Truncate(name, 1<<40))
		}, false, errTooLarge},
		{"another file", func(name string) error {
			return errors.Join(os.WriteFile(name+"2", nil, 0o600), os.WriteFile(name, head, 0o600))
		}, false, errReplaced},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := startJITCollector(t)
			pid, _ := j.start(t)
			name := j.tmp("jit-1.dump")
			if err := tt.make(name); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(name)
			defer os.Remove(name + "2")
			var st syscall.Stat_t
			if err := syscall.Lstat(name, &st); err != nil {
				t.Fatal(err)
			}
			key := &binaryKey{FileKey: FileKey{Path: "/tmp/jit-1.dump", Major: dev.Major, Minor: dev.Minor,
				Inode: st.Ino, Mnt: 2}}
			if errors.Is(tt.why, errReplaced) {
				key.Inode--
			}
			k.enqueue(key, mappedAt{pid: pid, mnt: 2})
			k.Start()
			k.Wait()
			sum, _ := k.Result()
			if (sum.Code == 1) != tt.kept {
				t.Errorf("%+v", sum)
			}
			if tt.why != nil && sum.Missing["generated code: "+tt.why.Error()] != 1 {
				t.Errorf("missing %v, want %v", sum.Missing, tt.why)
			}
			for _, f := range k.Contents() {
				if f.Path != key.Path || f.Inode != key.Inode || f.MountNS != 2 || f.Major != dev.Major ||
					f.Minor != dev.Minor {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// A perf map that was written before its process began is that of an earlier one; one
// that two processes have at the same time is neither's.
func TestPerfMapOwner(t *testing.T) {
	j := newJail(t)
	k := startJITCollector(t)
	first, endFirst := j.start(t)
	second, endSecond := j.start(t)
	older, endOlder := j.start(t)
	name := func(pid int) string { return j.tmp(fmt.Sprintf("perf-%d.map", pid)) }
	if err := errors.Join(os.WriteFile(name(first), []byte("1000 20 f\n"), 0o600), os.Link(name(first), name(second)),
		os.WriteFile(name(older), []byte("1000 20 g\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	hour := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name(older), hour, hour); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{first, second, older} {
		k.enqueue(memoryOf(pid))
	}
	k.Start()
	k.Wait()
	endFirst()
	endSecond()
	endOlder()
	sum, _ := k.Result()
	shared, earlier := sum.Missing["generated code: "+errShared.Error()], sum.Missing["generated code: "+errOlder.Error()]
	if sum.Code != 0 || shared != 2 || earlier != 1 {
		t.Errorf("%+v", sum)
	}
}
