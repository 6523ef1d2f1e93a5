// SPDX-License-Identifier: Apache-2.0

//go:build linux

package enter

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// user is who a program runs as, as the container numbers users.
type user struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// user finds a user: "NAME", "NAME:GROUP", by names or numbers. Names are those of
// the container's /etc/passwd and /etc/group.
func (c *Container) user(text string) (*user, error) {
	if text == "" {
		return c.ownUser()
	}
	name, group, hasGroup := strings.Cut(text, ":")
	u := &user{home: "/"}
	uid, numErr := strconv.ParseUint(name, 10, 31)
	u.uid = uint32(uid)
	found := false
	err := c.lines("etc/passwd", func(f []string) {
		if found || len(f) < 6 || f[0] != name && (numErr != nil || f[2] != name) {
			return
		}
		id, e1 := strconv.ParseUint(f[2], 10, 31)
		gid, e2 := strconv.ParseUint(f[3], 10, 31)
		if e1 == nil && e2 == nil {
			found, name = true, f[0]
			u.uid, u.gid, u.home = uint32(id), uint32(gid), f[5]
		}
	})
	if numErr != nil && !found {
		err = fmt.Errorf("user %q: %w", name, cmp.Or(err, error(syscall.ENOENT)))
		return nil, hint.Wrap(err, "name a user of the container's /etc/passwd, or a number: --user 1000")
	}
	err = c.lines("etc/group", func(f []string) {
		if len(f) < 4 {
			return
		}
		id, e := strconv.ParseUint(f[2], 10, 31)
		switch {
		case e != nil:
		case hasGroup && f[0] == group:
			u.gid, group = uint32(id), f[2]
		case !hasGroup && found && slices.Contains(strings.Split(f[3], ","), name):
			u.groups = append(u.groups, uint32(id))
		}
	})
	if hasGroup {
		id, e := strconv.ParseUint(group, 10, 31)
		if e != nil {
			err = fmt.Errorf("group %q: %w", group, cmp.Or(err, error(syscall.ENOENT)))
			return nil, hint.Wrap(err, "name a group of the container's /etc/group, or a number: --user 1000:1000")
		}
		u.gid, u.groups = uint32(id), nil
	}
	return u, nil
}

// ownUser is the user of the container's process.
func (c *Container) ownUser() (*user, error) {
	u := &user{home: "/"}
	var err error
	if u.uid, err = inner(c.proc.UIDMap, c.status.UID[0]); err == nil {
		u.gid, err = inner(c.proc.GIDMap, c.status.GID[0])
	}
	if err != nil {
		return nil, err
	}
	id := strconv.FormatUint(uint64(u.uid), 10)
	// Without /etc/passwd there is no home but the root.
	_ = c.lines("etc/passwd", func(f []string) {
		if len(f) >= 6 && f[2] == id && u.home == "/" {
			u.home = f[5]
		}
	})
	return u, nil
}

// inner is the number that a user or group of the host has in the container's user
// namespace.
func inner(read func() (procfs.IDMap, error), id uint32) (uint32, error) {
	ids, err := read()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	n, ok := ids.Inside(id)
	if !ok {
		return 0, fmt.Errorf("user or group %d has no number in the container's user namespace: %w", id, syscall.EINVAL)
	}
	return n, nil
}

// maxUserFile bounds a file of users or groups, in bytes.
const maxUserFile = 1 << 20

// lines reads a file of the container whose lines have fields between colons.
func (c *Container) lines(name string, f func(fields []string)) error {
	fd, err := sys.OpenInRoot(c.root, name, syscall.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return err
	}
	st, err := fd.Stat()
	file := fd.File(name)
	defer file.Close()
	if err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fmt.Errorf("%s: not a file: %w", name, syscall.EINVAL)
	}
	sc := bufio.NewScanner(io.LimitReader(file, maxUserFile))
	for sc.Scan() {
		f(strings.Split(sc.Text(), ":"))
	}
	return sc.Err()
}
