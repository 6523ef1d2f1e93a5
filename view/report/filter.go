// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

// Filter selects samples. An empty list selects all; within a list one match
// is enough; all lists must match. In patterns, * stands for any text.
//
// The lists of labels drop samples. DSO and Symbol select the rows of a table
// by their frame; flame graphs and exports keep the stacks that have such a
// frame anywhere.
type Filter struct {
	// Container matches a name, the beginning of an id, a pod, an image or,
	// beginning with a slash, the path of a cgroup and all below it.
	Container []string
	// Identities select containers, too, under any definition: what one of
	// them or of Container matches is selected.
	Identities                    []container.Selector
	Pod, Namespace, Image, Cgroup []string
	Comm                          []string
	PID, TID, CPU                 []int32
	DSO, Symbol                   []string
	// Event matches names of events.
	Event []string
}

func (f *Filter) empty() bool { return !f.labelled() && len(f.DSO)+len(f.Symbol)+len(f.Event) == 0 }

// labelled reports whether labels decide, and so samples are dropped.
func (f *Filter) labelled() bool { return f.fields() != 0 || len(f.Identities) > 0 }

func (f *Filter) fields() profile.Fields {
	var set profile.Fields
	for _, l := range []struct {
		n     int
		field profile.Fields
	}{
		{len(f.Container), profile.FieldContainer}, {len(f.Pod), profile.FieldPod},
		{len(f.Namespace), profile.FieldNamespace}, {len(f.Image), profile.FieldImage},
		{len(f.Cgroup), profile.FieldCgroup}, {len(f.Comm), profile.FieldComm},
		{len(f.PID), profile.FieldPID}, {len(f.TID), profile.FieldTID}, {len(f.CPU), profile.FieldCPU},
	} {
		if l.n > 0 {
			set |= l.field
		}
	}
	if len(f.Container) > 0 {
		set |= profile.FieldPod | profile.FieldNamespace | profile.FieldImage
	}
	if slices.ContainsFunc(f.Container, func(p string) bool { return strings.HasPrefix(p, "/") }) {
		set |= profile.FieldCgroup
	}
	return set
}

func (f *Filter) labels(l *profile.Labels) bool {
	return f.container(l) && match(f.Pod, l.Pod) && match(f.Namespace, l.Namespace) &&
		match(f.Image, l.Image) && match(f.Cgroup, l.Cgroup) && match(f.Comm, l.Comm) &&
		has(f.PID, l.PID) && has(f.TID, l.TID) && has(f.CPU, l.CPU)
}

// minIDPrefix keeps a short name from matching an id by accident.
const minIDPrefix = 3

func (f *Filter) container(l *profile.Labels) bool {
	if len(f.Container)+len(f.Identities) == 0 {
		return true
	}
	return slices.ContainsFunc(f.Container, func(p string) bool { return isContainer(p, l) }) || f.identity(l)
}

// identity reports whether one of the identities is selected.
func (f *Filter) identity(l *profile.Labels) bool {
	if len(f.Identities) == 0 {
		return false
	}
	for i := range l.Identities.All() {
		id, err := container.ParseIdentity(i.ID)
		if err != nil {
			continue // of the host, or not known
		}
		id.Definition = i.Definition
		if slices.ContainsFunc(f.Identities, func(s container.Selector) bool { return s.Matches(&id) }) {
			return true
		}
	}
	return false
}

// isContainer says whether p selects the container of l.
func isContainer(p string, l *profile.Labels) bool {
	text := containerText(l)
	if p == text || text != noContainer && glob(p, text) { // the host is in no pattern
		return true
	}
	if strings.HasPrefix(p, "/") {
		return glob(p, l.Cgroup) || strings.HasPrefix(l.Cgroup, strings.TrimRight(p, "/")+"/")
	}
	if l.ContainerID == "" && l.Pod == "" && l.Image == "" {
		return false
	}
	if len(p) >= minIDPrefix && strings.HasPrefix(l.ContainerID, p) || l.ContainerID != "" && glob(p, l.ContainerID) {
		return true
	}
	if l.Pod != "" && (glob(p, l.Pod) || glob(p, l.Namespace+"/"+l.Pod) || glob(p, strings.TrimPrefix(l.Container, l.Pod+"/"))) {
		return true
	}
	return l.Image != "" && isImage(p, l.Image)
}

// isImage says whether p is an image's reference or its last components, with
// or without the tag.
func isImage(p, image string) bool {
	image, _, _ = strings.Cut(image, "@")
	bare := image
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		bare = image[:colon]
	}
	for _, s := range []string{image, bare} {
		if glob(p, s) || strings.HasSuffix(s, "/"+p) {
			return true
		}
	}
	return false
}

func (f *Filter) frame(fr *profile.Frame) bool {
	return match(f.DSO, dsoText(fr)) && match(f.Symbol, fr.Name)
}

// frames tells for each frame whether it passes; nil if all do.
func (f *Filter) frames(p *profile.Profile) []bool {
	if len(f.DSO)+len(f.Symbol) == 0 {
		return nil
	}
	pass := make([]bool, p.NumFrames())
	for id := range pass {
		fr := p.Frame(profile.FrameID(id))
		pass[id] = f.frame(&fr)
	}
	return pass
}

// events tells for each event whether it passes.
func (f *Filter) events(p *profile.Profile) []bool {
	pass := make([]bool, len(p.Events))
	for i := range pass {
		pass[i] = match(f.Event, p.Events[i].Name)
	}
	return pass
}

// String lists what the filter selects, for the head of a report.
func (f *Filter) String() string {
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, name+" "+strings.Join(list, ","))
		}
	}
	ints := func(name string, list []int32) {
		if len(list) > 0 {
			parts = append(parts, name+" "+strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]"))
		}
	}
	containers := slices.Clone(f.Container)
	for _, s := range f.Identities {
		if text := s.String(); !slices.Contains(containers, text) { // a name may mean several
			containers = append(containers, text)
		}
	}
	add("container", containers)
	add("pod", f.Pod)
	add("namespace", f.Namespace)
	add("image", f.Image)
	add("cgroup", f.Cgroup)
	add("comm", f.Comm)
	ints("pid", f.PID)
	ints("tid", f.TID)
	ints("cpu", f.CPU)
	add("dso", f.DSO)
	add("symbol", f.Symbol)
	add("event", f.Event)
	return strings.Join(parts, "; ")
}

func has(list []int32, n int32) bool { return len(list) == 0 || slices.Contains(list, n) }

func match(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return glob(p, s) })
}

// glob matches with * only: names of DSOs contain brackets, which path.Match
// would take for a class. It backtracks to the last star only, so it is linear
// times the pattern's length.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
