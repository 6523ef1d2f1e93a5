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

// commandRing gives the file a ring, by its number: _IOW('G', 1, uint64_t), of gantry.
const commandRing = 0x40084701

// openRing gives the provider a ring, if the directory has them.
func (p *Provider) openRing(dir string) {
	file, id, done, err := ringFile(dir)
	if err != nil {
		return // events are written to the file then
	}
	// The memory stays with user_events_data.
	defer done()
	fd, err := sys.DupFile(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return
	}
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
		err = p.command(commandRing, unsafe.Pointer(&id))
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
func ringFile(dir string) (file *os.File, id uint64, done func(), err error) {
	file, err = os.OpenFile(filepath.Join(dir, "ring"), os.O_RDWR, 0)
	if err == nil {
		var st os.FileInfo
		if st, err = file.Stat(); err == nil {
			return file, st.Sys().(*syscall.Stat_t).Ino, func() {}, nil
		}
		return nil, 0, nil, errors.Join(err, file.Close())
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "ring.socket"), Net: "unix"})
	if err != nil {
		return nil, 0, nil, err
	}
	file, id, err = receive(conn)
	if err != nil {
		return nil, 0, nil, errors.Join(err, conn.Close())
	}
	return file, id, func() { _ = conn.Close() }, nil // it has said all
}

// receive receives a ring and its number.
func receive(conn *net.UnixConn) (*os.File, uint64, error) {
	var id [8]byte
	control := make([]byte, syscall.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(id[:], control)
	if err != nil {
		return nil, 0, err
	}
	list, err := syscall.ParseSocketControlMessage(control[:m])
	if err != nil || n != len(id) || len(list) != 1 {
		return nil, 0, errors.Join(syscall.EPROTO, err)
	}
	fds, err := syscall.ParseUnixRights(&list[0])
	if err != nil || len(fds) != 1 {
		return nil, 0, errors.Join(syscall.EPROTO, err)
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "ring"), binary.NativeEndian.Uint64(id[:]), nil
}
