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

// minPrefix is the shortest id prefix that a selector may be.
const minPrefix = 3

// ByID is the container whose id starts with prefix. It is ErrNoMatch or
// ErrAmbiguous if that is not exactly one; a full id is never ambiguous with
// a longer one.
func (t *Table) ByID(prefix string) (*Container, error) {
	var found []*Container
	for _, c := range t.list {
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

// Match finds the containers and units that a selector means. It is tried,
// until something is found, as an id, a name, a pod (name, namespace/name or
// uid), a Label such as pod/name, an image (with or without registry and tag), a cgroup path, and a
// unique prefix of an id.
func (t *Table) Match(selector string) ([]*Container, error) {
	if selector == "" {
		return nil, fmt.Errorf("empty selector: %w", ErrNoMatch)
	}
	for _, is := range []func(*Container) bool{
		func(c *Container) bool { return c.ID == selector },
		func(c *Container) bool { return c.Name == selector || unitName(c) == selector },
		func(c *Container) bool {
			return c.Pod == selector || c.PodUID == selector || c.Pod != "" && c.PodNamespace+"/"+c.Pod == selector
		},
		func(c *Container) bool { return c.Label() == selector },
		func(c *Container) bool { return c.Image != "" && imageMatches(c.Image, selector) },
		func(c *Container) bool { return c.CgroupPath == "/"+strings.Trim(selector, "/") },
	} {
		if found := t.filter(is); len(found) > 0 {
			return found, nil
		}
	}
	c, err := t.ByID(selector)
	if err != nil {
		return nil, err
	}
	return []*Container{c}, nil
}

func (t *Table) filter(is func(*Container) bool) []*Container {
	var found []*Container
	for _, c := range t.list {
		if is(c) {
			found = append(found, c)
		}
	}
	return found
}

// unitName is "nginx" of the unit "nginx.service".
func unitName(c *Container) string {
	if c.Kind != KindUnit {
		return ""
	}
	return strings.TrimSuffix(c.ID, ".service")
}

// imageMatches reports whether selector is the image reference or a tail of
// its path, with or without the tag.
func imageMatches(image, selector string) bool {
	image, _, _ = strings.Cut(image, "@")
	if tail(image, selector) {
		return true
	}
	colon := strings.LastIndexByte(image, ':')
	return colon > strings.LastIndexByte(image, '/') && tail(image[:colon], selector)
}

// tail reports whether end is all of path or its last components.
func tail(path, end string) bool {
	return path == end || strings.HasSuffix(path, "/"+end)
}
