// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package filter decides in the kernel which samples are taken: a program that
// is set on an event (PERF_EVENT_IOC_SET_BPF) looks at the namespaces and the
// cgroup of the task that runs, before a record is written.
//
// A task is chosen by rules, each a bit of Rules. A rule holds if its condition
// on namespaces and its condition on the cgroup hold. What namespaces say is in
// the masks of the Config and in the map of identities; what a cgroup says is
// in the map of cgroups. What the maps do not have yet is undecided: the sample
// is taken, and who reads it decides.
//
// Never set a program on a tracepoint: it is called for the tracepoint itself,
// and takes its records from every other session. Probes of the uprobe and
// kprobe devices are events of their own.
package filter

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/gantry-tools/gantry/internal/linux/bpf"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Rules is a set of rules, a bit each. The first two have only one condition;
// for all others both are asked.
type Rules uint64

const (
	// ByNamespaces holds whatever the cgroup is.
	ByNamespaces Rules = 1 << iota
	// ByCgroup holds whatever the namespaces are.
	ByCgroup
	// FirstRule is the first of the others.
	FirstRule
)

// LastRule is the last bit.
const LastRule = Rules(1) << 63

// Bounds of a Config, as in filter.bpf.c.
const (
	NumNS    = 8
	MaxMasks = 32
)

// Namespaces are inodes, in the order of PERF_RECORD_NAMESPACES and the time
// namespace behind them (container.Namespaces).
type Namespaces [NumNS]uint32

// Mask is a set of namespaces that must all differ from the host's.
type Mask struct {
	Set uint32 // bit n is Namespaces[n]
	// ByIdentity: the map of identities may have some of this mask.
	ByIdentity bool
	// Any are the rules that every task satisfies that passes the mask.
	Any Rules
	// Open are those that a task may satisfy whose identity is not in the map.
	Open Rules
	// All are those that some task may satisfy: what is asked of one that has
	// given up its namespaces, as it ends.
	All Rules
}

// Identity is a key of the map of identities.
type Identity struct {
	Mask uint32     // Mask.Set
	NS   Namespaces // those of the mask, the others 0
}

// Config is what does not change while the programs run.
type Config struct {
	Host  Namespaces
	Masks []Mask // at most MaxMasks, each Set once
	// ByCgroup: the rule of that name is in use.
	ByCgroup bool
	// Identities and Cgroups are how many the maps have room for.
	Identities, Cgroups int
}

// mask is struct mask of filter.bpf.c.
type mask struct {
	Set, Listed    uint32
	Any, Open, All uint64
}

// Programs are the loaded filter. Close releases it; events that it was set on
// keep it as long as they are open.
type Programs struct {
	objects struct {
		programPrograms
		programMaps
	}
}

// Load loads the filter (Linux 5.12). The errors are those of bpf.Load.
func Load(c *Config) (*Programs, error) {
	spec, err := loadProgram()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	if err := c.set(spec); err != nil {
		return nil, fmt.Errorf("set up BPF filter: %w", err)
	}
	p := new(Programs)
	if err := bpf.Load(spec, &p.objects); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *Config) set(spec *ebpf.CollectionSpec) error {
	if len(c.Masks) > MaxMasks {
		return fmt.Errorf("%d masks, at most %d: %w", len(c.Masks), MaxMasks, syscall.E2BIG)
	}
	var masks [MaxMasks]mask
	all := uint32(0)
	for i, m := range c.Masks {
		masks[i] = mask{Set: m.Set, Any: uint64(m.Any), Open: uint64(m.Open), All: uint64(m.Any | m.Open | m.All)}
		if m.ByIdentity {
			masks[i].Listed = 1
		}
		all |= m.Set
	}
	byCgroup := Rules(0)
	if c.ByCgroup {
		byCgroup = ByCgroup
	}
	spec.Maps["identities"].MaxEntries = uint32(max(c.Identities, 1))
	spec.Maps["cgroups"].MaxEntries = uint32(max(c.Cgroups, 1))
	var errs []error
	for name, v := range map[string]any{
		"host": c.Host, "masks": masks, "mask_count": uint32(len(c.Masks)), "all_sets": all,
		"by_cgroup": uint64(byCgroup),
	} {
		errs = append(errs, spec.Variables[name].Set(v))
	}
	return errors.Join(errs...)
}

// Close releases the programs and the maps. Closing twice does nothing.
func (p *Programs) Close() error {
	return errors.Join(p.objects.programPrograms.Close(), p.objects.programMaps.Close())
}

// Attach sets the filter on an event that is no tracepoint. probe: it is one of
// the uprobe or kprobe device.
func (p *Programs) Attach(event *sys.FD, probe bool) error {
	program := p.objects.FilterSample
	if probe {
		program = p.objects.FilterProbe
	}
	return sys.PerfSetBPF(event, program.FD())
}

// SetCgroup says which rules a cgroup satisfies, by its id.
func (p *Programs) SetCgroup(id uint64, rules Rules) error {
	return put(p.objects.Cgroups, &id, rules)
}

// ForgetCgroup makes a cgroup undecided again.
func (p *Programs) ForgetCgroup(id uint64) error { return remove(p.objects.Cgroups, &id) }

// SetIdentity says which rules an identity satisfies.
func (p *Programs) SetIdentity(id *Identity, rules Rules) error {
	return put(p.objects.Identities, id, rules)
}

// ForgetIdentity makes an identity undecided again.
func (p *Programs) ForgetIdentity(id *Identity) error { return remove(p.objects.Identities, id) }

// put fails with syscall.E2BIG if the map is full.
func put(m *ebpf.Map, key any, rules Rules) error {
	v := uint64(rules)
	if err := m.Put(key, &v); err != nil {
		return fmt.Errorf("fill BPF map: %w", err)
	}
	return nil
}

func remove(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("clear BPF map: %w", err)
	}
	return nil
}

// Counts is what a program decided on one CPU.
type Counts struct {
	Kept, Undecided, Dropped uint64
}

// Counts are those of the samples of events, and of the hits of probes, by CPU
// number. A probe that is open on several CPUs counts a hit once for each.
func (p *Programs) Counts() (samples, probes []Counts, err error) {
	var list [2][]Counts
	for i := range list {
		key := uint32(i)
		if err := p.objects.Counts.Lookup(&key, &list[i]); err != nil {
			return nil, nil, fmt.Errorf("read counts of the BPF filter: %w", err)
		}
	}
	return list[0], list[1], nil
}
