// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

// Containers are those of a recording, of which a Matcher selects some. What a name
// means depends on what other containers there are, so each one that comes up may
// change the selection.
type Containers struct {
	list   []*container.Container
	byKey  map[containerKey]*container.Container
	byID   map[string]*container.Container
	chosen map[*container.Container]bool // nil: to be worked out
	err    error
}

// NewContainers returns the containers that a recording tells of, which have labels.
func NewContainers(known []*container.Container) *Containers {
	s := &Containers{
		list: slices.Clone(known), byKey: make(map[containerKey]*container.Container),
		byID: make(map[string]*container.Container),
	}
	for _, c := range known {
		if c.ID != "" && c.Kind == container.KindContainer {
			s.byID[c.ID] = c
		}
	}
	return s
}

// containerKey is what labels tell of a container.
type containerKey struct{ name, id, pod, namespace, image, cgroup string }

// of returns the container of labels.
func (s *Containers) of(l *profile.Labels) *container.Container {
	key := containerKey{containerText(l), l.ContainerID, l.Pod, l.Namespace, l.Image, l.Cgroup}
	c := s.byKey[key]
	if c != nil {
		return c
	}
	if c = s.byID[l.ContainerID]; c == nil {
		c = &container.Container{
			Kind: container.KindContainer, Name: key.name, ID: l.ContainerID, Pod: l.Pod, PodNamespace: l.Namespace,
			Image: l.Image, CgroupPath: l.Cgroup,
		}
		if l.Pod != "" {
			c.Name = strings.TrimPrefix(key.name, l.Pod+"/")
		}
		s.list, s.chosen = append(s.list, c), nil
	}
	s.byKey[key] = c
	return c
}

// has reports whether the Matcher selects a container of the set.
func (s *Containers) has(m *container.Matcher, c *container.Container) bool {
	if s.chosen == nil {
		s.chosen, s.err = make(map[*container.Container]bool), nil
		each := *m
		for i := range max(1, len(m.Names)) {
			if len(m.Names) > 0 {
				each.Names = m.Names[i : i+1]
			}
			found, err := each.Select(s.list)
			if errors.Is(err, container.ErrAmbiguous) {
				s.err = err
			}
			for _, c := range found {
				s.chosen[c] = true
			}
		}
	}
	return s.chosen[c]
}

// Err is container.ErrAmbiguous if a name is the beginning of several ids among
// the containers that were looked at.
func (f *Filter) Err() error {
	if f.Known == nil {
		return nil
	}
	return f.Known.err
}

// prepare looks at all containers of a profile before the first is asked about.
func (f *Filter) prepare(p *profile.Profile) {
	if f.Match.IsEmpty() {
		return
	}
	if f.Known == nil {
		f.Known = NewContainers(nil)
	}
	for id := range p.NumLabels() {
		if l := p.Labels(profile.LabelsID(id)); containerText(l) != noContainer {
			f.Known.of(l)
		}
	}
}

// container reports whether labels are of a selected container.
func (f *Filter) container(l *profile.Labels) bool {
	if f.Match.IsEmpty() && len(f.Identities) == 0 {
		return true
	}
	if f.identity(l) {
		return true
	}
	only := len(f.Match.Pods)+len(f.Match.Namespaces)+len(f.Match.Images)+len(f.Match.Labels) == 0
	text := containerText(l)
	for _, name := range f.Match.Names {
		// The host is in no pattern, and cgroups need not be containers'.
		if only && (name == text || strings.HasPrefix(name, "/") && container.MatchesCgroup(name, l.Cgroup)) {
			return true
		}
	}
	if f.Match.IsEmpty() || text == noContainer {
		return false
	}
	if f.Known == nil {
		f.Known = NewContainers(nil)
	}
	return f.Known.has(&f.Match, f.Known.of(l))
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
