// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoMatch says that a selector selects no container.
var ErrNoMatch = errors.New("no such container")

// ErrAmbiguous says that an id prefix is that of several containers.
var ErrAmbiguous = errors.New("id prefix is not unique")

// minPrefix is the shortest id prefix that a name may be.
const minPrefix = 3

// Matcher selects containers by what they are called: it is the one meaning of
// --container, --pod, --namespace, --image and --selector of all commands. A
// container must match one pattern of each list that is not empty. In patterns *
// stands for any text.
type Matcher struct {
	// Names are tried, until one kind finds something, as an id (also with the
	// runtime in front, docker://ID), a name, a pod (name, namespace/name or
	// uid), a label such as pod/name, an image, the path of a cgroup with all
	// below it, and a unique prefix of an id. One with a * is all kinds at once.
	Names []string
	// Pods are names of pods, namespace/name, or uids.
	Pods []string
	// Namespaces are those of Kubernetes.
	Namespaces []string
	// Images are references, with or without registry and tag.
	Images []string
	// Labels must all be met.
	Labels []LabelSelector
}

// ByName returns the Matcher of one name.
func ByName(name string) Matcher { return Matcher{Names: []string{name}} }

// IsEmpty reports whether the Matcher selects every container.
func (m *Matcher) IsEmpty() bool {
	return len(m.Names)+len(m.Pods)+len(m.Namespaces)+len(m.Images)+len(m.Labels) == 0
}

// String is the Matcher as it may be given on the command line.
func (m *Matcher) String() string {
	parts := []string{strings.Join(m.Names, ",")}
	for _, l := range []struct {
		flag string
		list []string
	}{{"--pod", m.Pods}, {"-n", m.Namespaces}, {"--image", m.Images}} {
		if len(l.list) > 0 {
			parts = append(parts, l.flag+" "+strings.Join(l.list, ","))
		}
	}
	for i := range m.Labels {
		parts = append(parts, "-l "+m.Labels[i].String())
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// Select returns those of the list that match, in the order of the list. The error
// is ErrNoMatch or ErrAmbiguous, of the first name that selects nothing.
func (m *Matcher) Select(list []*Container) ([]*Container, error) {
	list = filter(list, func(c *Container) bool {
		return matchAny(m.Pods, c.matchesPod) &&
			matchAny(m.Namespaces, func(p string) bool { return MatchStars(p, c.PodNamespace) }) &&
			matchAny(m.Images, c.matchesImage) &&
			!slices.ContainsFunc(m.Labels, func(l LabelSelector) bool { return !l.Matches(c.Labels) })
	})
	if len(m.Names) == 0 {
		if len(list) == 0 {
			return nil, fmt.Errorf("%s: %w", m, ErrNoMatch)
		}
		return list, nil
	}
	chosen := make(map[*Container]bool)
	for _, name := range m.Names {
		found, err := selectName(list, name)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			chosen[c] = true
		}
	}
	return filter(list, func(c *Container) bool { return chosen[c] }), nil
}

func filter(list []*Container, is func(*Container) bool) []*Container {
	var found []*Container
	for _, c := range list {
		if is(c) {
			found = append(found, c)
		}
	}
	return found
}

// matchAny reports whether one of the patterns matches; there may be none.
func matchAny(patterns []string, is func(string) bool) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, is)
}

// selectName returns the containers that a name means.
func selectName(list []*Container, name string) ([]*Container, error) {
	if name == "" {
		return nil, fmt.Errorf("empty selector: %w", ErrNoMatch)
	}
	id := withoutRuntime(name)
	if strings.Contains(name, "*") {
		found := filter(list, func(c *Container) bool {
			return c.Kind == KindContainer &&
				(slices.ContainsFunc([]string{c.Name, c.Label(), c.ShortID()},
					func(s string) bool { return s != "" && MatchStars(name, s) }) ||
					c.ID != "" && MatchStars(id, c.ID) || c.matchesPod(name) || c.matchesImage(name) ||
					c.matchesCgroup(name))
		})
		if len(found) == 0 {
			return nil, fmt.Errorf("%q: %w", name, ErrNoMatch)
		}
		return found, nil
	}
	for _, is := range []func(*Container) bool{
		func(c *Container) bool { return c.ID != "" && c.ID == id },
		func(c *Container) bool { return c.Name == name || unitName(c) == name },
		func(c *Container) bool { return c.matchesPod(name) },
		func(c *Container) bool { return c.Label() == name },
		func(c *Container) bool { return c.matchesImage(name) },
		func(c *Container) bool { return c.matchesCgroup(name) },
	} {
		if found := filter(list, is); len(found) > 0 {
			return found, nil
		}
	}
	c, err := byIDPrefix(list, id)
	if err != nil {
		return nil, err
	}
	return []*Container{c}, nil
}

// byIDPrefix returns the container whose id starts with a prefix. It is ErrNoMatch
// or ErrAmbiguous if that is not exactly one; a full id is never ambiguous with
// a longer one.
func byIDPrefix(list []*Container, prefix string) (*Container, error) {
	var found []*Container
	for _, c := range list {
		switch {
		case c.ID == "" || !strings.HasPrefix(c.ID, prefix):
		case c.ID == prefix:
			return c, nil
		case len(prefix) >= minPrefix && !slices.ContainsFunc(found, func(o *Container) bool { return o.ID == c.ID }):
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%q: %w", prefix, ErrNoMatch)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%q (%s and %s): %w", prefix, found[0].ID, found[1].ID, ErrAmbiguous)
}

// withoutRuntime is the id of "docker://ID", as kubectl shows it; any other name as
// it is.
func withoutRuntime(name string) string {
	if runtime, id, ok := strings.Cut(name, "://"); ok && runtime != "" && !strings.ContainsAny(runtime, "/*") {
		return id
	}
	return name
}

// matchesPod reports whether a pattern is of the container's pod: its name,
// namespace/name or uid.
func (c *Container) matchesPod(pattern string) bool {
	if c.Pod == "" {
		return c.PodUID != "" && c.PodUID == pattern
	}
	return MatchStars(pattern, c.Pod) || MatchStars(pattern, c.PodNamespace+"/"+c.Pod) || c.PodUID != "" &&
		c.PodUID == pattern
}

// matchesImage reports whether a pattern is the image reference or a tail of its
// path, with or without the tag.
func (c *Container) matchesImage(pattern string) bool {
	if c.Image == "" {
		return false
	}
	image, _, _ := strings.Cut(c.Image, "@")
	if isTail(image, pattern) {
		return true
	}
	colon := strings.LastIndexByte(image, ':')
	return colon > strings.LastIndexByte(image, '/') && isTail(image[:colon], pattern)
}

// isTail reports whether a pattern is all of a path or its last components.
func isTail(path, pattern string) bool {
	for {
		if MatchStars(pattern, path) {
			return true
		}
		_, rest, ok := strings.Cut(path, "/")
		if !ok {
			return false
		}
		path = rest
	}
}

// matchesCgroup reports whether a pattern is the path of the container's cgroup, or
// of one above it.
func (c *Container) matchesCgroup(pattern string) bool {
	return MatchesCgroup(pattern, c.CgroupPath)
}

// MatchesCgroup reports whether a pattern is a cgroup's path, or that of one above it.
// The root, which all are below, is neither.
func MatchesCgroup(pattern, cgroup string) bool {
	if cgroup == "" || cgroup == "/" {
		return false
	}
	pattern = "/" + strings.Trim(pattern, "/")
	if strings.Contains(pattern, "*") {
		return MatchStars(pattern, cgroup)
	}
	return cgroup == pattern || pattern != "/" && strings.HasPrefix(cgroup, pattern+"/")
}

// unitName is "nginx" of the unit "nginx.service".
func unitName(c *Container) string {
	if c.Kind != KindUnit {
		return ""
	}
	return strings.TrimSuffix(c.ID, ".service")
}

// MatchStars reports whether a text matches a pattern, in which * stands for any
// text, none included, and everything else for itself.
func MatchStars(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !star || !ok {
		return ok && text == ""
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, p := range parts[:last] {
		if _, text, ok = strings.Cut(text, p); !ok {
			return false
		}
	}
	return strings.HasSuffix(text, parts[last])
}

// LabelSelector is one condition on the labels of a container, as kubectl's
// --selector has it.
type LabelSelector struct {
	Key string
	// Op is "=" (the value is Value), "!=" (it is another one, or there is none),
	// "" (there is one) or "!" (there is none).
	Op, Value string
}

// ErrLabel says that a text is no label selector.
var ErrLabel = errors.New("not a label selector")

// ParseLabels reads conditions by comma: KEY=VALUE (also ==), KEY!=VALUE, KEY, !KEY.
func ParseLabels(text string) ([]LabelSelector, error) {
	var list []LabelSelector
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		l := LabelSelector{Key: part}
		if key, value, ok := strings.Cut(part, "!="); ok {
			l = LabelSelector{key, "!=", value}
		} else if key, value, ok := strings.Cut(part, "="); ok {
			l = LabelSelector{key, "=", strings.TrimPrefix(value, "=")}
		} else if key, ok := strings.CutPrefix(part, "!"); ok {
			l = LabelSelector{Key: key, Op: "!"}
		}
		l.Key, l.Value = strings.TrimSpace(l.Key), strings.TrimSpace(l.Value)
		if l.Key == "" || strings.ContainsAny(l.Key, "=! ()") {
			return nil, fmt.Errorf("%q: %w: write KEY=VALUE, KEY!=VALUE, KEY or !KEY", text, ErrLabel)
		}
		list = append(list, l)
	}
	return list, nil
}

// Matches reports whether labels meet the condition.
func (l *LabelSelector) Matches(labels map[string]string) bool {
	value, ok := labels[l.Key]
	switch l.Op {
	case "=":
		return ok && value == l.Value
	case "!=":
		return !ok || value != l.Value
	case "!":
		return !ok
	}
	return ok
}

// String is the condition as ParseLabels reads it.
func (l *LabelSelector) String() string {
	if l.Op == "!" {
		return "!" + l.Key
	}
	return l.Key + l.Op + l.Value
}

// Select returns the containers and units that a Matcher means.
func (t *Table) Select(m Matcher) ([]*Container, error) { return m.Select(t.list) }
