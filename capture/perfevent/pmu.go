// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// PMUOptions say where the kernel's descriptions of events are.
type PMUOptions struct {
	// Sysfs is the root of sysfs; the default is /sys.
	Sysfs fs.FS
	// Tracefs is the root of tracefs. By default it is found, or mounted
	// privately, when the first tracepoint is asked for.
	Tracefs fs.FS
}

// PMUs are the event devices and tracepoints of a machine. It is read on
// demand and may be used from several goroutines.
type PMUs struct {
	sysfs fs.FS

	mu    sync.Mutex
	trace *Tracefs
}

// NewPMUs describes a machine; nil options describe this one.
func NewPMUs(o *PMUOptions) *PMUs {
	if o == nil {
		o = &PMUOptions{}
	}
	p := &PMUs{sysfs: o.Sysfs}
	if p.sysfs == nil {
		p.sysfs = os.DirFS("/sys")
	}
	if o.Tracefs != nil {
		p.trace = &Tracefs{FS: o.Tracefs}
	}
	return p
}

// Close releases a private mount of tracefs.
func (p *PMUs) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trace
	p.trace = nil
	return t.Close()
}

// Tracefs is the machine's tracefs. It stays the PMUs'.
func (p *PMUs) Tracefs() (*Tracefs, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trace == nil {
		t, err := OpenTracefs()
		if err != nil {
			return nil, err
		}
		p.trace = t
	}
	return p.trace, nil
}

// devices is where sysfs lists the PMUs.
const devices = "bus/event_source/devices"

// Names lists the event devices.
func (p *PMUs) Names() ([]string, error) {
	list, err := fs.ReadDir(p.sysfs, devices)
	if err != nil {
		return nil, fmt.Errorf("list event devices: %w", err)
	}
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, nil
}

// Types maps the type number of each device to its name, as the PMU_MAPPINGS
// section of a file has it.
func (p *PMUs) Types() (map[perf.EventType]string, error) {
	names, err := p.Names()
	if err != nil {
		return nil, err
	}
	types := make(map[perf.EventType]string, len(names))
	for _, n := range names {
		u, err := p.find(n)
		if err != nil {
			return nil, err
		}
		types[u.typ] = n
	}
	return types, nil
}

// pmu is one event device.
type pmu struct {
	sysfs fs.FS
	name  string
	typ   perf.EventType
	cpus  []int // nil: all
}

// find describes the device name, or fails with fs.ErrNotExist.
func (p *PMUs) find(name string) (*pmu, error) {
	if name == "" || strings.Contains(name, "/") || !fs.ValidPath(devices+"/"+name) {
		return nil, fmt.Errorf("event device %q: %w", name, fs.ErrNotExist)
	}
	u := &pmu{sysfs: p.sysfs, name: name}
	text, err := u.read("type")
	if err != nil {
		return nil, fmt.Errorf("event device %q: %w", name, err)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("event device %q: type: %w", name, err)
	}
	u.typ = perf.EventType(n)
	// cpumask: one CPU per package (uncore); cpus: the cores of one kind.
	for _, file := range []string{"cpumask", "cpus"} {
		if text, err = u.read(file); err != nil {
			continue
		}
		if u.cpus, err = sys.ParseCPUList(text); err != nil {
			return nil, fmt.Errorf("event device %q: %s: %w", name, file, err)
		}
		break
	}
	return u, nil
}

// match finds the devices that name stands for: itself, its numbered
// instances (uncore_imc for uncore_imc_0, ...), or those a glob matches.
func (p *PMUs) match(name string) ([]*pmu, error) {
	u, err := p.find(name)
	if err == nil {
		return []*pmu{u}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names, err := p.Names()
	if err != nil {
		return nil, err
	}
	var found []*pmu
	for _, n := range names {
		if !instanceOf(n, name) && !instanceOf(n, "uncore_"+name) {
			continue
		}
		if u, err = p.find(n); err != nil {
			return nil, err
		}
		found = append(found, u)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("event device %q: %w", name, fs.ErrNotExist)
	}
	return found, nil
}

// instanceOf: n is name, or name with a number, or matches the glob name.
func instanceOf(n, name string) bool {
	if ok, err := path.Match(name, n); ok && err == nil {
		return true
	}
	number, ok := strings.CutPrefix(n, name+"_")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// withAlias finds the devices whose events directory names the event.
func (p *PMUs) withAlias(event string) []*pmu {
	names, err := p.Names()
	if err != nil {
		return nil
	}
	var found []*pmu
	for _, n := range names {
		u, err := p.find(n)
		if err != nil {
			continue
		}
		if _, err := u.alias(event); err == nil {
			found = append(found, u)
		}
	}
	return found
}

// aliasNames lists the named events of all devices.
func (p *PMUs) aliasNames() []string {
	names, err := p.Names()
	if err != nil {
		return nil
	}
	var all []string
	for _, n := range names {
		all = append(all, (&pmu{sysfs: p.sysfs, name: n}).aliases()...)
	}
	return all
}

// hybridCores finds the devices of a machine with two kinds of core, where a
// generic hardware event must say which kind. Others have one core device,
// "cpu", without a list of CPUs.
func (p *PMUs) hybridCores() []*pmu {
	if _, err := p.find("cpu"); err == nil {
		return nil
	}
	var cores []*pmu
	for _, n := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		if u, err := p.find(n); err == nil {
			cores = append(cores, u)
		}
	}
	if len(cores) < 2 {
		return nil
	}
	return cores
}

// maxSysfsFile bounds what is read of a file: sysfs gives a page at most.
const maxSysfsFile = 64 << 10

// read reads a file of the device, without surrounding blanks.
func (u *pmu) read(name string) (string, error) {
	return readText(u.sysfs, path.Join(devices, u.name, name), maxSysfsFile)
}

func readText(fsys fs.FS, name string, limit int64) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// terms lists the device's format fields.
func (u *pmu) terms() []string {
	list, err := fs.ReadDir(u.sysfs, path.Join(devices, u.name, "format"))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// aliases lists the device's named events.
func (u *pmu) aliases() []string {
	list, err := fs.ReadDir(u.sysfs, path.Join(devices, u.name, "events"))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range list {
		if !isAliasInfo(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// isAliasInfo: a file in events that describes the event it is named after.
func isAliasInfo(name string) bool {
	for _, s := range []string{".scale", ".unit", ".per-pkg", ".snapshot"} {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

// alias is a named event of a device.
type alias struct {
	terms []termSyntax
	scale float64
	unit  string
}

func (u *pmu) alias(event string) (*alias, error) {
	if event == "" || strings.Contains(event, "/") || isAliasInfo(event) || !fs.ValidPath("events/"+event) {
		return nil, fmt.Errorf("event %q of %s: %w", event, u.name, fs.ErrNotExist)
	}
	text, err := u.read("events/" + event)
	if err != nil {
		return nil, err
	}
	a := &alias{scale: 1}
	if a.terms, err = parseTerms(text); err != nil {
		return nil, fmt.Errorf("event %q of %s: %w", event, u.name, err)
	}
	if text, err = u.read("events/" + event + ".scale"); err == nil {
		if a.scale, err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("event %q of %s: scale: %w", event, u.name, err)
		}
	}
	if a.unit, err = u.read("events/" + event + ".unit"); err != nil {
		a.unit = ""
	}
	return a, nil
}

// parseTerms reads the terms of an alias file: event=0x3c,umask=0x1.
func parseTerms(text string) ([]termSyntax, error) {
	p := &parser{s: text + "/"}
	var ev eventSyntax
	if err := p.terms(&ev); err != nil {
		return nil, located(err, text)
	}
	if !p.end() || ev.mods.text != "" {
		return nil, located(p.fail(ErrSyntax, "unexpected "+p.found()), text)
	}
	return ev.terms, nil
}
