// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"fmt"
	"os"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Inode numbers of the initial namespaces, from linux/proc_ns.h: the same on
// every machine.
const (
	initialUserNS = 0xEFFFFFFD
	initialPIDNS  = 0xEFFFFFFC
)

// NoParanoid is Privilege.Paranoid if it could not be read.
const NoParanoid = -100

// Privilege is what this process may do, as far as it is a matter of rights.
type Privilege struct {
	UID int `json:"uid"`
	// Paranoid is kernel.perf_event_paranoid.
	Paranoid int64 `json:"perf_event_paranoid"`
	// Capabilities are the effective ones among those that count here.
	Capabilities []string `json:"capabilities"`
	// Seccomp is off, strict or filter.
	Seccomp string `json:"seccomp"`
	// Lockdown is none, integrity or confidentiality; empty if unknown.
	Lockdown string `json:"lockdown,omitempty"`
	// LSMs are the active security modules; nil if unknown.
	LSMs []string `json:"lsm,omitempty"`
	// InUserNS and InPIDNS: not in the machine's initial namespace. The
	// kernel looks at capabilities in the initial user namespace only.
	InUserNS bool `json:"in_user_namespace"`
	InPIDNS  bool `json:"in_pid_namespace"`
	// InContainer: in a pid namespace, and a container's runtime left its
	// marks. Without them it may be unshare(1), which no runtime can help.
	InContainer bool `json:"in_container"`

	caps sys.Capabilities
}

// Has reports whether a capability counts for perf events.
func (p *Privilege) Has(c sys.Capability) bool { return p.caps.Has(c) && !p.InUserNS }

// Perfmon reports whether perf_event_paranoid does not matter.
func (p *Privilege) Perfmon() bool { return p.Has(sys.CapPerfmon) || p.Has(sys.CapSysAdmin) }

// Grant is how this process is given capabilities: one call for all that are
// needed, because the next setcap takes back what the last one gave.
func (p *Privilege) Grant(needs []sys.Capability) string {
	var names []string
	for _, c := range needs {
		names = append(names, strings.TrimPrefix(c.String(), "CAP_"))
	}
	if p.InContainer {
		return "--cap-add " + strings.Join(names, " --cap-add ")
	}
	for i, n := range names {
		names[i] = "cap_" + strings.ToLower(n)
	}
	return "sudo, or setcap " + strings.Join(names, ",") + "+ep on gantry"
}

// Privilege reads the rights of this process. What cannot be read stays at
// its zero value: none of it is needed for an answer, only for the reasons.
func (p *Prober) Privilege() Privilege {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.privilege()
}

func (p *Prober) privilege() Privilege {
	if p.rights != nil {
		return *p.rights
	}
	self := p.fs.Self()
	r := Privilege{UID: os.Geteuid(), Paranoid: NoParanoid, Seccomp: "unknown"}
	if n, err := p.fs.SysctlInt("kernel.perf_event_paranoid"); err == nil {
		r.Paranoid = n
	}
	if s, err := self.Status(); err == nil {
		r.Seccomp = [...]string{"off", "strict", "filter"}[min(max(s.Seccomp, 0), 2)]
	}
	if caps, err := p.sys.capabilities(); err == nil {
		r.caps = caps
	}
	for _, c := range countingCapabilities() {
		if r.caps.Has(c) {
			r.Capabilities = append(r.Capabilities, c.String())
		}
	}
	r.InUserNS = otherNamespace(self, "user", initialUserNS)
	r.InPIDNS = otherNamespace(self, "pid", initialPIDNS)
	r.InContainer = r.InPIDNS && p.runtimeMarks()
	r.Lockdown = p.lockdown()
	r.LSMs = p.modules()
	p.rights = &r
	return r
}

// countingCapabilities are those that some check depends on.
func countingCapabilities() []sys.Capability {
	return []sys.Capability{
		sys.CapPerfmon, sys.CapSysAdmin, sys.CapBPF, sys.CapSyslog, sys.CapSysPtrace,
		sys.CapDACReadSearch, sys.CapCheckpointRestore, sys.CapIPCLock,
	}
}

func otherNamespace(p procfs.Proc, kind string, initial uint64) bool {
	n, err := p.Namespace(kind)
	return err == nil && n != initial
}

// runtimeMarks: files that runtimes make, their cgroups, a root that is an
// overlay.
func (p *Prober) runtimeMarks() bool {
	for _, path := range []string{".dockerenv", "run/.containerenv", "run/secrets/kubernetes.io",
		"var/run/secrets/kubernetes.io"} {
		if _, err := os.Lstat(p.fs.Path(path)); err == nil {
			return true
		}
	}
	if b, err := os.ReadFile(p.fs.Path("proc/self/cgroup")); err == nil {
		for _, word := range []string{"docker", "kubepods", "libpod", "containerd", "crio", "lxc", "nspawn"} {
			if strings.Contains(string(b), word) {
				return true
			}
		}
	}
	b, err := os.ReadFile(p.fs.Path("proc/self/mountinfo"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		mount, source, ok := strings.Cut(line, " - ")
		if f := strings.Fields(mount); ok && len(f) > 4 && f[4] == "/" && strings.HasPrefix(source, "overlay ") {
			return true
		}
	}
	return false
}

// lockdown reads the mode in brackets of "none [integrity] confidentiality".
func (p *Prober) lockdown() string {
	b, err := os.ReadFile(p.fs.Path("sys/kernel/security/lockdown"))
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(b), "[")
	mode, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return ""
	}
	return mode
}

func (p *Prober) modules() []string {
	b, err := os.ReadFile(p.fs.Path("sys/kernel/security/lsm"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), ",")
}

// String is one line about who asks.
func (p *Privilege) String() string {
	caps := "no capability that counts"
	switch n := len(p.Capabilities); {
	case p.InUserNS && n > 0:
		caps = "capabilities of a user namespace"
	case n == len(countingCapabilities()):
		caps = "all capabilities"
	case n > 0:
		caps = strings.Join(p.Capabilities, " ")
	}
	return fmt.Sprintf("uid %d, %s", p.UID, strings.ReplaceAll(caps, "CAP_", ""))
}
