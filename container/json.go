// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// version is raised when a reader of the old one would be wrong; a new field
// does not need that.
const version = 1

// Bounds of a table in a file. A machine has a few hundred containers and a
// few thousand cgroups.
const (
	maxContainers = 1 << 16
	maxCgroups    = 1 << 20
	maxCPUs       = 1 << 14
	maxText       = 1 << 13
	maxLabels     = 1 << 10
)

// ErrVersion says that a table was written by a newer gantry.
var ErrVersion = errors.New("container table of a newer version")

// errTable is a table that no gantry wrote.
var errTable = errors.New("malformed container table")

// tableJSON is a Table in a file.
type tableJSON struct {
	Version     int         `json:"version"`
	Host        Namespaces  `json:"host_namespaces,omitzero"`
	Definitions definitions `json:"definitions,omitempty"`
	Containers  containers  `json:"containers,omitempty"`
	Cgroups     cgroups     `json:"cgroups,omitempty"`
	BootOffset  uint64      `json:"boot_offset_ns,omitempty"`
	Lost        Lost        `json:"lost,omitzero"`
	Full        bool        `json:"full,omitempty"`
}

// Lists that are given up while they are read, not when they fill the memory.
type (
	containers  []*Container
	cgroups     []Cgroup
	definitions []Definition
)

func (l *containers) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList[*Container](json.NewDecoder(bytes.NewReader(b)), maxContainers)
	return err
}

func (l *cgroups) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList[Cgroup](json.NewDecoder(bytes.NewReader(b)), maxCgroups)
	return err
}

func (l *definitions) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList[Definition](json.NewDecoder(bytes.NewReader(b)), MaxDefinitions)
	return err
}

var errNotList = errors.New("not a list")

// decodeList reads a JSON list of at most limit elements; null is none.
func decodeList[T any](dec *json.Decoder, limit int) ([]T, error) {
	start, err := dec.Token()
	if err != nil || start == nil {
		return nil, err
	}
	if start != json.Delim('[') {
		return nil, errNotList
	}
	var list []T
	for dec.More() {
		if len(list) >= limit {
			return nil, fmt.Errorf("more than %d elements", limit)
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err = dec.Token()
	return list, err
}

// IsZero reports whether nothing was lost.
func (l Lost) IsZero() bool { return len(l.CPUs) == 0 && len(l.Cgroups) == 0 }

// MarshalJSON writes the table for feature bit 200 of a perf.data file. The
// same table gives the same bytes.
func (t *Table) MarshalJSON() ([]byte, error) {
	list := slices.Clone(t.list)
	slices.SortStableFunc(list, func(a, b *Container) int {
		return cmp.Or(cmp.Compare(a.CgroupID, b.CgroupID), cmp.Compare(a.StartTime, b.StartTime),
			cmp.Compare(a.ID, b.ID))
	})
	return json.Marshal(tableJSON{
		Version: version, Host: t.Host, Definitions: definitions(t.Definitions.Custom()),
		Containers: list, Cgroups: t.Cgroups(), BootOffset: t.BootOffset, Lost: t.Lost, Full: t.Full,
	})
}

// UnmarshalJSON replaces the table by what MarshalJSON wrote. Fields that it
// does not know are skipped; a table beyond the bounds is an error.
func (t *Table) UnmarshalJSON(b []byte) error {
	var in tableJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("%w: %w", errTable, err)
	}
	if in.Version > version {
		return fmt.Errorf("version %d: %w", in.Version, ErrVersion)
	}
	if err := in.check(); err != nil {
		return fmt.Errorf("%w: %w", errTable, err)
	}
	*t = Table{Host: in.Host, BootOffset: in.BootOffset, Lost: in.Lost, Full: in.Full,
		Definitions: Definitions(in.Definitions)}
	for _, c := range in.Cgroups {
		t.setPath(c.ID, c.Path)
	}
	t.list = in.Containers
	// In the order of time, each goes to the end of its index: a hostile file
	// has all of them under one key.
	for _, c := range slices.SortedStableFunc(slices.Values(t.list),
		func(a, b *Container) int { return cmp.Compare(a.StartTime, b.StartTime) }) {
		t.index(c)
	}
	return nil
}

func (in *tableJSON) check() error {
	switch {
	case in.Version < 1:
		return fmt.Errorf("version %d", in.Version)
	case len(in.Lost.CPUs) > maxCPUs || len(in.Lost.Cgroups) > maxCgroups:
		return fmt.Errorf("%d lost counts", len(in.Lost.CPUs)+len(in.Lost.Cgroups))
	}
	// A name may have been built in since the recording: that one counts.
	var defs Definitions
	for _, d := range in.Definitions {
		if err := defs.Add(d); err != nil {
			return err
		}
	}
	for i, c := range in.Cgroups {
		if c.ID == 0 || c.Path == "" || len(c.Path) > maxText {
			return fmt.Errorf("cgroup %d", i)
		}
	}
	for i, c := range in.Containers {
		if c == nil || !c.bounded() {
			return fmt.Errorf("container %d", i)
		}
	}
	return nil
}

// bounded reports whether the container's texts are of a sane size.
func (c *Container) bounded() bool {
	for _, s := range []string{string(c.Kind), c.ID, c.Name, c.Runtime, c.Image, c.Pod, c.PodNamespace, c.PodUID,
		c.CgroupPath} {
		if len(s) > maxText {
			return false
		}
	}
	for k, v := range c.Labels {
		if len(k)+len(v) > maxText {
			return false
		}
	}
	return len(c.Labels) <= maxLabels
}
