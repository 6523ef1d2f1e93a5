// SPDX-License-Identifier: Apache-2.0

//go:build linux

package userevents

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// openRing gives the provider a ring, if the directory has them.
func (p *Provider) openRing(dir string) {
	fd, id, done, err := ringFile(dir)
	if err != nil {
		return // events are written to the file then
	}
	// The memory stays with user_events_data.
	defer done()
	defer fd.Close()
	mem, err := mapRing(fd)
	if err != nil {
		return
	}
	now, err := sys.ClockMonotonic.Now()
	if err == nil {
		p.begin, p.beginNS = time.Now(), uint64(now)
		p.ring, err = ring.NewWriter(mem.Bytes())
	}
	if err == nil {
		err = p.command(ring.Command, unsafe.Pointer(&id))
	}
	if err != nil {
		p.ring = nil
		_ = mem.Close() // it was of no use
		return
	}
	p.ringMem = mem
}

// mapRing maps a ring.
func mapRing(fd *sys.FD) (*sys.Mapping, error) {
	page, err := sys.Mmap(fd, ring.Header, false)
	if err != nil {
		return nil, err
	}
	size, err := ring.DataSize(page.Bytes())
	if err = errors.Join(err, page.Close()); err != nil {
		return nil, err
	}
	return sys.Mmap(fd, ring.Header+size, true)
}

// ringFile opens a ring and returns its number. done is called when it is the events'.
func ringFile(dir string) (fd *sys.FD, id uint64, done func(), err error) {
	if fd, err = sys.Open(filepath.Join(dir, "ring"), os.O_RDWR); err == nil {
		st, err := fd.Stat()
		if err != nil {
			return nil, 0, nil, errors.Join(err, fd.Close())
		}
		return fd, st.Inode, func() {}, nil
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "ring.socket"), Net: "unix"})
	if err != nil {
		return nil, 0, nil, err
	}
	var number [8]byte
	n, fd, err := sys.ReceiveConn(conn, number[:])
	if err != nil || n != len(number) || fd == nil {
		return nil, 0, nil, errors.Join(syscall.EPROTO, err, fd.Close(), conn.Close())
	}
	return fd, binary.NativeEndian.Uint64(number[:]), func() { _ = conn.Close() }, nil // it has said all
}
