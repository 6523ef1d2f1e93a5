// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"errors"
	"syscall"

	"github.com/gantry-tools/gantry/perf"
)

// feature opens a dummy event that asks for something a kernel may not know:
// it answers an unknown bit with EINVAL, and an attr that is too long with
// E2BIG.
func (p *Prober) feature(since, have string, change func(*perf.Attr)) Result {
	a := dummy()
	change(a)
	err := p.sys.openEvent(a, own())
	switch {
	case err == nil:
		return yes("%s", have)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.E2BIG):
		return no(Kernel, EffortKernel, "boot Linux "+since+" or later", "needs Linux %s", since)
	}
	if base := p.check(OwnUser); base.Answer != Yes {
		return base
	}
	// Some sideband is for the privileged at every level of paranoid.
	if r := p.privilege(); permission(err) && !r.Perfmon() {
		if r.InUserNS {
			return no(Namespace, EffortProcess, "run on the host: rights of a user namespace do not count here",
				"needs CAP_PERFMON on the host")
		}
		return p.lacks(Capability, "", perfmon(), "needs CAP_PERFMON")
	}
	return p.refused(err, 2)
}

func (p *Prober) cgroupIDs() Result {
	return p.feature("5.7 with CONFIG_CGROUP_PERF", "samples tell their cgroup", func(a *perf.Attr) {
		a.Flags |= perf.AttrCgroup
		a.SampleType |= perf.SampleCgroup
	})
}

func (p *Prober) namespaces() Result {
	return p.feature("4.12", "records of changed namespaces", func(a *perf.Attr) { a.Flags |= perf.AttrNamespaces })
}

func (p *Prober) bpfEvents() Result {
	return p.feature("5.1", "records of BPF programs",
		func(a *perf.Attr) { a.Flags |= perf.AttrKsymbol | perf.AttrBPFEvent })
}

func (p *Prober) textPoke() Result {
	return p.feature("5.9", "records of changed kernel code", func(a *perf.Attr) { a.Flags |= perf.AttrTextPoke })
}

func (p *Prober) lostCounts() Result {
	return p.feature("6.0", "counts tell lost samples", func(a *perf.Attr) { a.ReadFormat |= perf.FormatLost })
}
