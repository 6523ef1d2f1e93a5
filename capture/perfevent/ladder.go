// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Feature is a part of an attr that a kernel may lack or refuse.
type Feature uint

// Features, the newest first: the order in which Open gives them up.
const (
	FeatureReadLost   Feature = iota // lost counts in reads, Linux 6.0
	FeatureBuildID                   // build-ids in Mmap2, 5.12
	FeatureWeight                    // weight struct, 5.12
	FeaturePageSize                  // code and data page sizes, 5.11
	FeatureTextPoke                  // changes of kernel code, 5.9
	FeatureCgroup                    // cgroup records and ids, 5.7
	FeatureBPFEvent                  // BPF loads and unloads, 5.1
	FeatureKsymbol                   // kernel symbols that come and go, 5.1
	FeatureNamespaces                // namespace records, 4.12; wants CAP_PERFMON
	FeatureSwitch                    // context switch records, 4.3
	FeatureMaxStack                  // a bound of the stack per event, 4.8
	FeatureKernel                    // kernel samples: a user gets only his own
	numFeatures
)

func (f Feature) String() string {
	names := [numFeatures]string{
		FeatureReadLost: "lost counts", FeatureBuildID: "build-ids in mmap records",
		FeatureWeight: "weight struct", FeaturePageSize: "page sizes",
		FeatureTextPoke: "kernel text changes", FeatureCgroup: "cgroups",
		FeatureBPFEvent: "BPF program events", FeatureKsymbol: "kernel symbol events",
		FeatureNamespaces: "namespaces", FeatureSwitch: "context switches",
		FeatureMaxStack: "stack bound per event", FeatureKernel: "kernel samples",
	}
	if f < numFeatures {
		return names[f]
	}
	return "unknown feature"
}

// remove takes f out of a and says whether it was there.
func (f Feature) remove(a *perf.Attr) bool {
	was := *a
	switch f {
	case FeatureReadLost:
		a.ReadFormat &^= perf.FormatLost
	case FeatureBuildID:
		a.Flags &^= perf.AttrBuildID
	case FeatureWeight:
		if a.SampleType&perf.SampleWeightStruct != 0 {
			a.SampleType = a.SampleType&^perf.SampleWeightStruct | perf.SampleWeight
		}
	case FeaturePageSize:
		a.SampleType &^= perf.SampleDataPageSize | perf.SampleCodePageSize
	case FeatureTextPoke:
		a.Flags &^= perf.AttrTextPoke
	case FeatureCgroup:
		a.Flags &^= perf.AttrCgroup
		a.SampleType &^= perf.SampleCgroup
	case FeatureBPFEvent:
		a.Flags &^= perf.AttrBPFEvent
	case FeatureKsymbol:
		a.Flags &^= perf.AttrKsymbol
	case FeatureNamespaces:
		a.Flags &^= perf.AttrNamespaces
	case FeatureSwitch:
		a.Flags &^= perf.AttrContextSwitch
	case FeatureMaxStack:
		a.SampleMaxStack = 0
	case FeatureKernel:
		a.Flags |= perf.AttrExcludeKernel | perf.AttrExcludeHV
	}
	return was.Flags != a.Flags || was.SampleType != a.SampleType ||
		was.ReadFormat != a.ReadFormat || was.SampleMaxStack != a.SampleMaxStack
}

// blamed reports whether the kernel may have meant f with err.
func (f Feature) blamed(err error, flags OpenFlags) bool {
	switch f {
	case FeatureKernel:
		return flags&AllowUserOnly != 0 && permission(err)
	case FeatureNamespaces, FeatureTextPoke, FeatureKsymbol, FeatureBPFEvent:
		if permission(err) {
			return true
		}
	}
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.E2BIG)
}

// climbDown drops features until the kernel takes a, and then takes back all
// that it takes back. It changes a only if it succeeds.
func climbDown(a *perf.Attr, t Target, group *sys.FD, first error) (*sys.FD, []Feature, error) {
	if !refused(first) {
		return nil, nil, first
	}
	down, err := *a, first
	var dropped []Feature
	for f := range numFeatures {
		if !f.blamed(err, t.Flags) || !f.remove(&down) {
			continue
		}
		dropped = append(dropped, f)
		fd, openErr := openFD(&down, t, group)
		if openErr == nil {
			tries := &climb{asked: *a, accepted: down, fd: fd, target: t, group: group}
			dropped = tries.up(dropped)
			*a = tries.accepted
			return tries.fd, dropped, nil
		}
		err = openErr
	}
	// Without all of them it is still refused: something else is wrong, and
	// the first answer says what.
	return nil, nil, first
}

// climb is an event that the kernel accepts without some of its features.
type climb struct {
	asked, accepted perf.Attr
	fd              *sys.FD // of accepted
	target          Target
	group           *sys.FD
}

// up takes back the features that were dropped before the guilty one was found, and
// returns the guilty ones. The last of dropped is guilty for sure.
func (c *climb) up(dropped []Feature) []Feature {
	guilty := []Feature{dropped[len(dropped)-1]}
	for i := len(dropped) - 2; i >= 0; i-- {
		try := c.asked
		for _, f := range guilty {
			f.remove(&try)
		}
		for _, f := range dropped[:i] {
			f.remove(&try)
		}
		better, err := openFD(&try, c.target, c.group)
		if err != nil {
			guilty = append(guilty, dropped[i])
			continue
		}
		c.fd.Close()
		c.fd, c.accepted = better, try
	}
	return guilty
}

func refused(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.E2BIG) || permission(err)
}

func permission(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}
