// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/buildid"
)

// DefaultCache is where the clients of this user keep what they got:
// $DEBUGINFOD_CACHE_PATH, or as elfutils has it below $HOME.
func DefaultCache(getenv func(string) string) (string, error) {
	if dir := getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		return dir, nil
	}
	home := getenv("HOME")
	if home != "" {
		old := filepath.Join(home, ".debuginfod_client_cache")
		if _, err := os.Stat(old); err == nil {
			return old, nil
		}
	}
	if dir := getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "debuginfod_client"), nil
	}
	if home == "" {
		return "", errors.New("no place for the cache of debuginfod: neither $DEBUGINFOD_CACHE_PATH nor $HOME is set")
	}
	return filepath.Join(home, ".cache/debuginfod_client"), nil
}

// Files of the cache that say how it is kept, each with a number of seconds
// (debuginfod_find_debuginfo(3)), and what counts without them.
const (
	missFile, defaultMiss         = "cache_miss_s", 10 * time.Minute
	unusedFile, defaultUnused     = "max_unused_age_s", 7 * 24 * time.Hour
	intervalFile, defaultInterval = "cache_clean_interval_s", 24 * time.Hour
)

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".gantry-"

// tempAge is how old a half-written file is when its writer is no more.
const tempAge = 24 * time.Hour

// cache is the directory that debuginfod clients share:
//
//	ID/executable, ID/debuginfo   files
//
// An empty file says that no server had it when it was written.
type cache struct {
	root *os.Root
}

// errKnownMissing: no server had it a short while ago.
var errKnownMissing = errors.New("not there a moment ago")

func openCache(dir string) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create cache of debuginfod: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache of debuginfod: %w", err)
	}
	c := &cache{root}
	c.clean(time.Now())
	return c, nil
}

func (c *cache) Close() error { return c.root.Close() }

// seconds reads one of the files that say how the cache is kept.
func (c *cache) seconds(name string, otherwise time.Duration) time.Duration {
	b, err := c.root.ReadFile(name)
	if err != nil || len(b) > 32 {
		return otherwise
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 32)
	if err != nil || n < 0 {
		return otherwise
	}
	return time.Duration(n) * time.Second
}

// open opens what the cache has, if it is what it should be.
func (c *cache) open(id buildid.ID, kind Kind) (*os.File, int64, error) {
	name := path.Join(id.String(), string(kind))
	f, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s in the cache is not a regular file", name)
	case info.Size() == 0 && time.Since(info.ModTime()) < c.seconds(missFile, defaultMiss):
		err = errKnownMissing
	case info.Size() == 0:
		err = errors.Join(fs.ErrNotExist, c.root.Remove(name))
	default:
		if err = buildid.Check(f, info.Size(), id); err != nil {
			err = errors.Join(err, c.root.Remove(name))
		}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// missing notes that no server has a file. Where that cannot be written, they
// are asked again.
func (c *cache) missing(id buildid.ID, kind Kind) {
	if c.root.MkdirAll(id.String(), 0o700) != nil {
		return
	}
	name := path.Join(id.String(), string(kind))
	if f, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
	}
}

// add writes what r has, at most limit bytes, and puts it in its place if it has
// the id.
func (c *cache) add(r io.Reader, id buildid.ID, kind Kind, limit int64) (size int64, err error) {
	dir := id.String()
	if err := c.root.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	temp := path.Join(dir, tempPrefix+rand.Text())
	f, err := c.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer c.root.Remove(temp) // fails if it was put in place
	defer f.Close()
	if size, err = io.Copy(f, io.LimitReader(r, limit+1)); err != nil {
		return 0, err
	}
	if size > limit {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if err := buildid.Check(f, size, id); err != nil {
		return 0, err
	}
	return size, c.root.Rename(temp, path.Join(dir, string(kind)))
}

// clean removes what no client has used for long, once in a while, as elfutils
// does. What cannot be removed stays.
func (c *cache) clean(now time.Time) {
	interval := c.seconds(intervalFile, defaultInterval)
	info, err := c.root.Stat(intervalFile)
	if errors.Is(err, fs.ErrNotExist) {
		c.root.WriteFile(intervalFile, strconv.AppendInt(nil, int64(defaultInterval/time.Second), 10), 0o600)
		return
	}
	if err != nil || now.Sub(info.ModTime()) < interval {
		return
	}
	c.root.Chtimes(intervalFile, now, now)
	unused := c.seconds(unusedFile, defaultUnused)
	dirs, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return
	}
	for _, d := range dirs {
		if _, err := buildid.Parse(d.Name()); err != nil || !d.IsDir() {
			continue
		}
		files, _ := fs.ReadDir(c.root.FS(), d.Name())
		for _, f := range files {
			info, err := f.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			limit := unused
			if strings.HasPrefix(f.Name(), tempPrefix) {
				limit = tempAge
			}
			if now.Sub(lastUse(info)) > limit {
				c.root.Remove(path.Join(d.Name(), f.Name()))
			}
		}
		c.root.Remove(d.Name()) // if it is empty now
	}
}
