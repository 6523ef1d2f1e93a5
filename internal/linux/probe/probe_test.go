// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// machine plays a kernel. The zero value lets everything pass.
type machine struct {
	reached, allowed error
	// open answers perf_event_open.
	open    func(a *perf.Attr, t target) error
	rings   error
	caps    sys.Capabilities
	noTree  error
	procmap error
	load    error             // of BPF programs
	files   map[string]string // below the root
	opened  int
	userNS  string // inode, default the initial one
	pidNS   string
}

// docker marks a machine as a container of docker.
func docker(m machine) machine {
	files := map[string]string{".dockerenv": ""}
	for name, text := range m.files {
		files[name] = text
	}
	m.pidNS, m.files = "1", files
	return m
}

func (m *machine) syscallReached() error   { return m.reached }
func (m *machine) syscallAllowed() error   { return m.allowed }
func (m *machine) mapRings(int, int) error { return m.rings }
func (m *machine) procmapQuery() error     { return m.procmap }
func (m *machine) loadIterators() error    { return m.load }
func (m *machine) loadFilter() error       { return m.load }
func (m *machine) loadCopier() error       { return m.load }
func (m *machine) bpfPrograms() error      { return m.load }
func (m *machine) cpus() ([]int, error)    { return []int{0, 3}, nil }
func (m *machine) memlock() (uint64, error) {
	return 8 << 20, nil
}

func (m *machine) capabilities() (sys.Capabilities, error) { return m.caps, nil }

func (m *machine) openEvent(a *perf.Attr, t target) error {
	m.opened++
	if m.reached != nil {
		return m.reached
	}
	if m.open == nil {
		return nil
	}
	return m.open(a, t)
}

func (m *machine) tracefs() (fs.FS, string, func() error, error) {
	if m.noTree != nil {
		return nil, "", nil, m.noTree
	}
	tree := fstest.MapFS{"events/sched/sched_switch/id": {Data: []byte("316\n")}}
	return tree, "", func() error { return nil }, nil
}

// prober writes the machine's files to a directory.
func (m *machine) prober(t *testing.T) *Prober {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"proc/self/status":                           "Name:\tgantry\nSeccomp:\t0\n",
		"proc/1/mountinfo":                           "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"proc/1/stat":                                "1 (init) S 0\n",
		"proc/1/maps":                                "",
		"proc/kallsyms":                              "0000000000000000 A a\nffffffff81000000 T _stext\n",
		"proc/sys/kernel/perf_event_paranoid":        "2\n",
		"proc/sys/kernel/kptr_restrict":              "1\n",
		"proc/sys/kernel/perf_event_mlock_kb":        "516\n",
		"proc/sys/kernel/perf_event_max_sample_rate": "100000\n",
		"proc/sys/kernel/perf_cpu_time_max_percent":  "25\n",
		"proc/sys/kernel/perf_event_max_stack":       "127\n",
		"sys/kernel/btf/vmlinux":                     "",
	}
	for name, text := range m.files {
		files[name] = text
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for kind, inode := range map[string]string{"user": m.userNS, "pid": m.pidNS} {
		if inode == "" {
			inode = fmt.Sprint(map[string]uint{"user": initialUserNS, "pid": initialPIDNS}[kind])
		}
		link(t, root, "self", kind, inode)
	}
	link(t, root, "1", "mnt", "4026531832")
	if err := os.Symlink("/", filepath.Join(root, "proc/1/root")); err != nil {
		t.Fatal(err)
	}
	return newProber(root, m)
}

func link(t *testing.T, root, pid, kind, inode string) {
	t.Helper()
	dir := filepath.Join(root, "proc", pid, "ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kind+":["+inode+"]", filepath.Join(dir, kind)); err != nil {
		t.Fatal(err)
	}
}

// refusing answers like a kernel with perf_event_paranoid at 2 to a user
// without capabilities.
func refusing(a *perf.Attr, t target) error {
	if a.Flags&perf.AttrExcludeKernel == 0 || t.pid == -1 || t.cgroup != "" {
		return syscall.EACCES
	}
	if a.Flags&perf.AttrNamespaces != 0 {
		return syscall.EACCES
	}
	return nil
}

// old answers EINVAL to everything that came after version 0 of the ABI.
func old(a *perf.Attr, _ target) error {
	const known = perf.AttrFlags(1<<24 - 1)
	if a.Flags&^known != 0 || a.SampleType&perf.SampleCgroup != 0 || a.ReadFormat&perf.FormatLost != 0 {
		return syscall.EINVAL
	}
	return nil
}

const allCaps = ^sys.Capabilities(0)

func filter() map[string]string {
	return map[string]string{"proc/self/status": "Name:\tgantry\nSeccomp:\t2\n"}
}

func TestChecks(t *testing.T) {
	eperm := fmt.Errorf("perf_event_open: %w", syscall.EPERM)
	for name, c := range map[string]struct {
		machine machine
		check   Check
		answer  Answer
		layer   Layer
		found   string // part of it
		hint    string // part of it
	}{
		"seccomp EPERM":           {docker(machine{reached: eperm, files: filter()}), Syscall, No, Seccomp, "operation not permitted", "seccomp profile"},
		"seccomp ENOSYS":          {machine{reached: syscall.ENOSYS, files: filter()}, Syscall, No, Seccomp, "not implemented", "service or sandbox"},
		"seccomp, for -a too":     {machine{reached: eperm, files: filter()}, CPUWide, No, Seccomp, "", ""},
		"seccomp, for features":   {machine{reached: eperm, files: filter()}, LostCounts, No, Seccomp, "", ""},
		"no perf":                 {machine{reached: syscall.ENOSYS}, Syscall, No, Kernel, "no perf events", "CONFIG_PERF_EVENTS"},
		"odd answer":              {machine{reached: syscall.EIO}, Syscall, Unknown, "", "input/output", ""},
		"LSM":                     {machine{allowed: syscall.EACCES, caps: allCaps, files: map[string]string{"sys/kernel/security/lsm": "selinux,bpf\n"}}, Syscall, No, LSM, "selinux,bpf", "policy"},
		"paranoid 4":              {machine{allowed: syscall.EACCES, files: map[string]string{"proc/sys/kernel/perf_event_paranoid": "4\n"}}, Syscall, No, Paranoid, "paranoid is 4", "paranoid=2"},
		"user: own":               {machine{open: refusing}, OwnUser, Yes, "", "own programs", ""},
		"user: own kernel":        {machine{open: refusing}, OwnKernel, No, Paranoid, "paranoid is 2", "paranoid=1"},
		"user: cpu-wide":          {machine{open: refusing}, CPUWide, No, Paranoid, "CAP_PERFMON is missing", "setcap cap_perfmon+ep"},
		"user: cgroup":            {machine{open: refusing}, CgroupEvents, No, Paranoid, "", "paranoid=0"},
		"user: tracepoints":       {machine{open: refusing}, Tracepoints, No, Paranoid, "", "paranoid=-1"},
		"user: namespaces":        {machine{open: refusing}, Namespaces, No, Capability, "CAP_PERFMON", "setcap"},
		"user: bpf":               {machine{open: refusing}, BPFIterators, No, Capability, "not both CAP_BPF", "setcap"},
		"container: cpu-wide":     {docker(machine{open: refusing}), CPUWide, No, Paranoid, "", "--cap-add PERFMON"},
		"container: tasks":        {docker(machine{}), OtherTasks, No, Namespace, "pid namespace", "--pid=host"},
		"container: tracefs":      {docker(machine{noTree: fmt.Errorf("%w: %w", errNotMounted, eperm)}), Tracepoints, No, FileSystem, "not mounted", "-v /sys/kernel/tracing"},
		"container: cgroup":       {docker(machine{files: map[string]string{"proc/1/mountinfo": "30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"}}), CgroupEvents, No, Cgroup, "in this container", "docker"},
		"unshare: cpu-wide":       {machine{open: refusing, pidNS: "1"}, CPUWide, No, Paranoid, "", "setcap cap_perfmon+ep"},
		"unshare: tasks":          {machine{pidNS: "1"}, OtherTasks, No, Namespace, "pid namespace", "run outside of this pid namespace"},
		"userns: cpu-wide":        {machine{open: refusing, caps: allCaps, userNS: "7"}, CPUWide, No, Namespace, "user namespace", "host"},
		"userns: namespaces":      {machine{open: refusing, caps: allCaps, userNS: "7"}, Namespaces, No, Namespace, "", "host"},
		"userns: bpf":             {machine{caps: allCaps, userNS: "7"}, BPFIterators, No, Namespace, "", "host"},
		"rights, still refused":   {machine{open: refusing, caps: allCaps}, CPUWide, No, LSM, "rights suffice", ""},
		"root":                    {machine{caps: allCaps}, CPUWide, Yes, "", "2 CPUs", ""},
		"root: tracepoints":       {machine{caps: allCaps}, Tracepoints, Yes, "", "a private mount", ""},
		"root: tasks":             {machine{caps: allCaps}, OtherTasks, Yes, "", "all processes", ""},
		"root: no user events":    {machine{caps: allCaps}, UserEvents, No, Kernel, "", "CONFIG_USER_EVENTS"},
		"old: cgroup ids":         {machine{open: old}, CgroupIDs, No, Kernel, "5.7", ""},
		"old: lost counts":        {machine{open: old}, LostCounts, No, Kernel, "6.0", ""},
		"old: procmap":            {machine{procmap: syscall.ENOTTY}, ProcmapQuery, No, Kernel, "6.11", ""},
		"old: no private tracefs": {machine{noTree: fmt.Errorf("%w: %w", errNotMounted, syscall.ENOSYS)}, Tracepoints, No, FileSystem, "not mounted", "mount -t tracefs"},
		"mlock":                   {machine{rings: fmt.Errorf("mmap: %w", syscall.EPERM)}, Rings, No, Limit, "516 kB a CPU, and locked memory 8192 kB", "ulimit -l"},
		"no PMU":                  {machine{open: func(*perf.Attr, target) error { return syscall.ENOENT }}, HardwarePMU, No, Hardware, "cpu-clock", ""},
		"kptr 2":                  {hidden("2"), KernelSymbols, No, Sysctl, "no one", "kptr_restrict=1"},
		"kptr 1":                  {hidden("1"), KernelSymbols, No, Capability, "SYSLOG", "kptr_restrict=0"},
		"kptr 0":                  {hidden("0"), KernelSymbols, No, Capability, "SYSLOG", "paranoid=1"},
		"low rate":                {machine{files: map[string]string{"proc/sys/kernel/perf_event_max_sample_rate": "1000\n"}}, SampleRate, No, Sysctl, "1000 Hz", "-F 1000"},
		"no sysctl":               {machine{files: map[string]string{"proc/sys/kernel/perf_event_max_sample_rate": "x\n"}}, SampleRate, Unknown, "", "", ""},
		"lockdown: tracefs":       {machine{noTree: eperm, files: locked()}, Tracepoints, No, Lockdown, "confidentiality", ""},
		"root: bpf":               {machine{caps: allCaps}, BPFIterators, Yes, "", "snapshots by", ""},
		"root: bpf refused":       {machine{caps: allCaps, load: eperm}, BPFIterators, No, LSM, "rights suffice", "policy"},
		"old: bpf":                {machine{caps: allCaps, load: syscall.EINVAL}, BPFIterators, No, Kernel, "invalid", "5.17"},
		"root: filter":            {machine{caps: allCaps}, BPFFilter, Yes, "", "told apart in the kernel", ""},
		"root: filter refused":    {machine{caps: allCaps, load: eperm}, BPFFilter, No, LSM, "rights suffice", "the recorder tells"},
		"root: copies":            {machine{caps: allCaps}, BPFCopies, Yes, "", "microseconds are known", ""},
		"old: copies":             {machine{caps: allCaps, load: syscall.EINVAL}, BPFCopies, No, Kernel, "invalid", "5.17 on x86-64"},
		"root: details":           {machine{caps: allCaps}, BPFDetails, Yes, "", "to who asks", ""},
		"user: details":           {machine{load: eperm}, BPFDetails, No, Capability, "CAP_SYS_ADMIN only", "bpf-copies"},
		"no bpf: details":         {machine{caps: allCaps, load: syscall.ENOSYS}, BPFDetails, No, Kernel, "no bpf(2)", "CONFIG_BPF_SYSCALL"},
		"old: filter":             {machine{caps: allCaps, load: syscall.EINVAL}, BPFFilter, No, Kernel, "invalid", "5.12"},
		"lockdown: bpf":           {machine{caps: allCaps, files: locked()}, BPFIterators, No, Lockdown, "confidentiality", ""},
		"v1 without perf_event":   {machine{files: map[string]string{"proc/1/mountinfo": "30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"}}, CgroupEvents, No, Cgroup, "v1", "cgroup2"},
		"v1 with perf_event":      {machine{files: map[string]string{"proc/1/mountinfo": "30 1 0:26 / /pe rw - cgroup cgroup rw,perf_event\n"}}, CgroupEvents, Yes, "", "/pe", ""},
		"no CONFIG_CGROUP_PERF":   {machine{open: func(_ *perf.Attr, t target) error { return map[bool]error{true: syscall.EINVAL}[t.cgroup != ""] }}, CgroupEvents, No, Kernel, "", "CONFIG_CGROUP_PERF"},
		"no such check":           {machine{}, "nonsense", Unknown, "", "nonsense", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.machine.prober(t).Check(c.check)
			if r.Answer != c.answer || r.Layer != c.layer || !strings.Contains(r.Observed, c.found) || !strings.Contains(r.Hint, c.hint) {
				t.Errorf("%+v\nwant %v by %q, found %q, hint %q", r, c.answer, c.layer, c.found, c.hint)
			}
			if r.Check != c.check || (r.Answer == Unknown) != (r.Err != nil) || (r.Answer == No) != (r.Hint != "") {
				t.Errorf("incomplete: %+v", r)
			}
		})
	}
}

// hidden is a machine that shows this user no kernel addresses.
func hidden(restrict string) machine {
	return machine{files: map[string]string{
		"proc/kallsyms":                 "0000000000000000 T _stext\n",
		"proc/sys/kernel/kptr_restrict": restrict + "\n",
	}}
}

func locked() map[string]string {
	return map[string]string{"sys/kernel/security/lockdown": "none integrity [confidentiality]\n"}
}

func TestOnlyConclusiveAnswersAreCached(t *testing.T) {
	answer := error(syscall.EIO)
	m := &machine{open: func(*perf.Attr, target) error { return answer }}
	p := m.prober(t)
	if r := p.Check(OwnUser); r.Answer != Unknown || !errors.Is(r.Err, syscall.EIO) {
		t.Fatalf("got %+v, want could not tell", r)
	}
	answer = nil
	if r := p.Check(OwnUser); r.Answer != Yes {
		t.Fatalf("asked again: %+v, want yes", r)
	}
	before := m.opened
	answer = syscall.EIO
	if r := p.Check(OwnUser); r.Answer != Yes || m.opened != before {
		t.Errorf("a yes was not cached: %+v", r)
	}
}

func TestPrivilege(t *testing.T) {
	m := &machine{caps: 1 << sys.CapPerfmon, files: map[string]string{
		"proc/self/status":             "Name:\tgantry\nSeccomp:\t2\n",
		"sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
		"sys/kernel/security/lsm":      "capability,apparmor\n",
	}}
	p := m.prober(t)
	r := p.Privilege()
	got := strings.TrimSpace(fmt.Sprintln(r.Paranoid, r.Capabilities, r.Seccomp, r.Lockdown, r.LSMs, r.InUserNS, r.InPIDNS, r.Perfmon()))
	if want := "2 [CAP_PERFMON] filter integrity [capability apparmor] false false true"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	m.userNS = "7"
	if r = m.prober(t).Privilege(); r.Perfmon() || !r.InUserNS {
		t.Errorf("the capability of a user namespace counts: %+v", r)
	}
}

func TestInContainer(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"docker":  {".dockerenv": ""},
		"podman":  {"run/.containerenv": ""},
		"cgroup":  {"proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/x.scope\n"},
		"overlay": {"proc/self/mountinfo": "9 8 0:40 / / rw,relatime - overlay overlay rw\n"},
	} {
		if r := (&machine{files: files, pidNS: "1"}).prober(t).Privilege(); !r.InContainer {
			t.Errorf("%s: no container", name)
		}
		if r := (&machine{files: files}).prober(t).Privilege(); r.InContainer {
			t.Errorf("%s: a container in the first pid namespace", name)
		}
	}
	plain := map[string]string{"proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": "9 8 0:40 / / rw - ext4 /dev/vda rw\n10 9 0:41 / /m rw - overlay overlay rw\n"}
	if r := (&machine{files: plain, pidNS: "1"}).prober(t).Privilege(); r.InContainer || !r.InPIDNS {
		t.Errorf("unshare: %+v", r)
	}
}
