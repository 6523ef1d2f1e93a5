// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gantry-tools/gantry/tracens"
)

// directory is the trace system that says whose the files below root/ are.
type directory struct{}

// access is whose the files of a namespace are.
type access struct {
	mu       sync.Mutex
	uid, gid uint32
	mode     uint32
}

const defaultMode = 0o700

func (a *access) get() (uid, gid, mode uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uid, a.gid, a.mode
}

func (*directory) Name() string { return "directory" }

func (d *directory) of(ns *tracens.Namespace) *access {
	a, _ := ns.Value(d).(*access)
	return a
}

func (d *directory) Create(ns *tracens.Namespace) error {
	ns.SetValue(d, &access{mode: defaultMode})
	return nil
}

func (*directory) Remove(*tracens.Namespace) error { return nil }
func (*directory) IsBusy(*tracens.Namespace) bool  { return false }

// Parse reads owner UID, group GID and mode MODE, an octal number.
func (d *directory) Parse(ns *tracens.Namespace, command string) error {
	word, value, _ := strings.Cut(command, " ")
	base, most := 10, uint64(1<<32-2)
	switch word {
	case "owner", "group":
	case "mode":
		base, most = 8, 0o777
	default:
		return tracens.ErrNotMine
	}
	n, err := strconv.ParseUint(strings.TrimSpace(value), base, 32)
	if err != nil || n > most {
		return fmt.Errorf("%q is no %s: %w", value, word, syscall.EINVAL)
	}
	a := d.of(ns)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch word {
	case "owner":
		a.uid = uint32(n)
	case "group":
		a.gid = uint32(n)
	case "mode":
		a.mode = uint32(n)
	}
	return nil
}

func (d *directory) Show(ns *tracens.Namespace) (string, error) {
	uid, gid, mode := d.of(ns).get()
	return fmt.Sprintf("owner %d\ngroup %d\nmode %04o\n", uid, gid, mode), nil
}
