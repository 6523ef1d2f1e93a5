// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Mapped is a mapped file that its build-id does not find, by what MMAP2 records
// say of it, and the id that it was kept by.
type Mapped struct {
	ID   ID     `json:"id"`
	Path string `json:"path"`
	// BuildID is the file's, if it has one, which others may claim as well. Then
	// records do not tell device and inode.
	BuildID ID     `json:"build_id,omitzero"`
	Major   uint32 `json:"major"`
	Minor   uint32 `json:"minor"`
	Inode   uint64 `json:"inode"`
	// Gen is the generation of the inode in its lower 32 bits, MountNS the mount
	// namespace of who mapped it; 0 is not known. The upper bits of Gen say which
	// of the mount namespaces with that number it is.
	Gen     uint64 `json:"gen,omitempty"`
	MountNS uint64 `json:"mount_ns,omitempty"`
}

// MappedFiles are the files of a recording that build-ids do not find.
type MappedFiles []Mapped

// MaxMapped bounds the files in a recording.
const MaxMapped = 1 << 16

// UnmarshalJSON reads what json.Marshal wrote; null is none. Too long a list is
// given up while it is read.
func (l *MappedFiles) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	start, err := dec.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return errors.New("mapped files are not a list")
	}
	*l = nil
	for dec.More() {
		if len(*l) == MaxMapped {
			return fmt.Errorf("more than %d mapped files", MaxMapped)
		}
		var m Mapped
		if err := dec.Decode(&m); err != nil {
			return err
		}
		*l = append(*l, m)
	}
	return nil
}

// Find is the id that a mapped file was kept by. What is not known on one side
// differs from nothing; files that differ by it only have no id. A file with a
// build-id is in one mount namespace only.
func (l MappedFiles) Find(file *Mapped) (id ID, ok bool) {
	for i := range l {
		m := &l[i]
		if m.BuildID != file.BuildID || m.Path != file.Path || m.Inode != file.Inode || m.Major != file.Major ||
			m.Minor != file.Minor ||
			m.Gen>>32 != file.Gen>>32 || !same(m.Gen&math.MaxUint32, file.Gen&math.MaxUint32) ||
			!same(m.MountNS, file.MountNS) || !m.BuildID.IsZero() && m.MountNS != file.MountNS {
			continue
		}
		if ok && m.ID != id {
			return ID{}, false
		}
		id, ok = m.ID, true
	}
	return id, ok && !id.IsZero()
}

func same(a, b uint64) bool { return a == b || a == 0 || b == 0 }
