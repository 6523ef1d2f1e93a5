// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// lockMode is how the store is locked.
type lockMode int

const (
	shared    lockMode = syscall.LOCK_SH // by those who put a file in its place
	exclusive lockMode = syscall.LOCK_EX // by those who remove one
)

// lock takes the store's lock, which ends with the process, and returns what
// releases it. It is held for a few system calls. Where there is no lock to be
// had (a file system without locks, another user's store), both sides do
// without: place then makes again what was removed meanwhile.
//
// Only its owner can open the lock's file, so that no other user can hold it.
func (s *Store) lock(mode lockMode) (unlock func()) {
	f, err := s.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return func() {}
	}
	flock(f, int(mode)) // as said above
	return func() { f.Close() }
}

func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			if failed = syscall.Flock(int(fd), how); !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// tempFile is a file that is being written. Its lock says that its writer
// lives.
type tempFile struct {
	name string
	f    *os.File
}

// close removes the file, unless it was renamed.
func (t tempFile) close(s *Store) {
	s.root.Remove(t.name)
	t.f.Close()
}

// copyTemp writes what r has, at most limit bytes if that is not 0, into a new
// file. The caller closes it.
func (s *Store) copyTemp(r io.Reader, limit int64) (_ tempFile, err error) {
	t := tempFile{name: tempPrefix + rand.Text()}
	t.f, err = s.root.OpenFile(t.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return t, err
	}
	defer func() {
		if err != nil {
			t.close(s)
		}
	}()
	flock(t.f, syscall.LOCK_EX) // without one, removeTemps waits for longer
	if limit > 0 {
		r = &io.LimitedReader{R: r, N: limit + 1}
	}
	n, err := io.Copy(t.f, r)
	if err == nil && limit > 0 && n > limit {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return t, err
}

const (
	// A temporary file without lock is left alone for lockDelay: its writer
	// may be about to lock it. Where there are no locks, for noLockDelay.
	lockDelay   = time.Minute
	noLockDelay = 24 * time.Hour
)

// removeTemps removes the temporary files of writers that are no more, and
// returns how many.
func (s *Store) removeTemps(now time.Time) int {
	dir, err := s.root.Open(".")
	if err != nil {
		return 0
	}
	defer dir.Close()
	removed := 0
	for {
		names, err := dir.Readdirnames(1 << 10)
		for _, name := range names {
			if strings.HasPrefix(name, tempPrefix) && s.abandoned(name, now) && s.root.Remove(name) == nil {
				removed++
			}
		}
		if err != nil {
			return removed
		}
	}
}

// abandoned reports whether a temporary file has no writer any more.
func (s *Store) abandoned(name string, now time.Time) bool {
	f, _, err := s.openFile(name)
	if err != nil {
		return false
	}
	defer f.Close()
	delay := lockDelay
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return false
	} else if err != nil {
		delay = noLockDelay
	}
	info, err := f.Stat()
	return err == nil && now.Sub(info.ModTime()) > delay
}
