// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"bytes"
	"io/fs"
	"slices"
	"testing"
)

// memoryCache is a Cache that counts.
type memoryCache struct {
	kept        map[[32]byte][]byte
	hits, saved int
}

func newCache() *memoryCache { return &memoryCache{kept: make(map[[32]byte][]byte)} }

func (c *memoryCache) Derived(key [32]byte) ([]byte, error) {
	b, ok := c.kept[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	c.hits++
	return bytes.Clone(b), nil
}

func (c *memoryCache) AddDerived(key [32]byte, content []byte) error {
	c.saved++
	c.kept[key] = bytes.Clone(content)
	return nil
}

// only is what is kept in a cache that has one file.
func (c *memoryCache) only(t testing.TB) (key [32]byte, b []byte) {
	t.Helper()
	if len(c.kept) != 1 {
		t.Fatalf("%d files are kept", len(c.kept))
	}
	for key, b = range c.kept {
	}
	return key, b
}

// cached is Data with a cache, however small the file is.
func cached(src *Source, c *memoryCache, o Options) *Data {
	d := New(src, &o)
	d.opts.Cache = c
	d.loadCache()
	return d
}

// allAddresses are those around every place where something changes.
func allAddresses(d *Data) (list []uint64) {
	d.index()
	for _, u := range d.main.units {
		u.load()
		for _, r := range u.lines.rows {
			list = append(list, r.addr-1, r.addr, r.addr+1)
		}
		for _, s := range u.tree.starts {
			list = append(list, s-1, s, s+1)
		}
	}
	return list
}

func sameAnswers(t *testing.T, want, got *Data, addrs []uint64) {
	t.Helper()
	for _, a := range addrs {
		if x, y := want.Calls(nil, a), got.Calls(nil, a); !slices.Equal(x, y) {
			t.Fatalf("at %#x: kept %v, read %v", a, y, x)
		}
	}
}

// What was kept gives the same answers, without the sections.
func TestCache(t *testing.T) {
	for _, flags := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4"}, {"-gdwarf-2"}, {"-ffunction-sections"}, {"-static"}, {"-gz"}} {
		path := program(t, flags...)
		whole := New(load(t, path), nil)
		addrs, c := allAddresses(whole), newCache()
		if len(addrs) < 10 {
			t.Fatalf("%v: %d addresses", flags, len(addrs))
		}
		for range 2 {
			d := cached(load(t, path), c, Options{})
			sameAnswers(t, whole, d, addrs)
			if err := d.Save(); err != nil || d.Err() != nil {
				t.Fatal(err, d.Err())
			}
			if c.hits == 1 && d.main != nil {
				t.Errorf("%v: sections were read again", flags)
			}
		}
		if c.hits != 1 || c.saved != 1 {
			t.Errorf("%v: %d hits, saved %d times", flags, c.hits, c.saved)
		}
	}
}

// Units that were not kept are read, and join those that were.
func TestCacheInPart(t *testing.T) {
	path := program(t)
	src := func() *Source {
		s := load(t, path)
		two := *s
		// The same unit once more, elsewhere.
		two.Info = append(slices.Clone(unit4(die(2, 0x1100, 0x10, 0)...)), s.Info...)
		two.Abbrev = append(slices.Clone(s.Abbrev), abbrev4()...)
		two.Info[6] = byte(len(s.Abbrev)) // debug_abbrev_offset
		two.Info[7] = byte(len(s.Abbrev) >> 8)
		return &two
	}
	whole, c := New(src(), nil), newCache()
	addrs := allAddresses(whole)
	first := cached(src(), c, Options{})
	if calls := first.Calls(nil, 0x1105); len(calls) != 1 {
		t.Fatalf("%v", calls)
	}
	if first.Save() != nil || c.saved != 1 {
		t.Fatalf("saved %d times", c.saved)
	}
	_, small := c.only(t)
	second := cached(src(), c, Options{})
	sameAnswers(t, whole, second, addrs)
	if second.main == nil || second.Save() != nil || c.saved != 2 {
		t.Fatalf("saved %d times", c.saved)
	}
	if _, b := c.only(t); len(b) <= len(small) {
		t.Errorf("%d bytes of two units, %d of one", len(b), len(small))
	}
	third := cached(src(), c, Options{})
	sameAnswers(t, whole, third, addrs)
	if third.main != nil {
		t.Error("sections were read for what was kept")
	}
}

// Names that are in the alternate file are kept as long as it is the same.
func TestCacheAlternate(t *testing.T) {
	path := program(t)
	for name, change := range map[string]func(*Source) *Source{
		"same":    func(s *Source) *Source { return s },
		"other":   func(s *Source) *Source { s.Str = append(s.Str, "more\x00"...); return s },
		"missing": func(*Source) *Source { return nil },
	} {
		alt, c := load(t, path), newCache()
		d := cached(load(t, path), c, Options{Alt: func() *Source { return alt }})
		addrs := allAddresses(d)
		d.altFile()
		if d.Save() != nil || c.saved != 1 {
			t.Fatalf("saved %d times", c.saved)
		}
		changed := change(load(t, path))
		again := cached(load(t, path), c, Options{Alt: func() *Source { return changed }})
		if used := again.cached != nil; used != (name == "same") {
			t.Errorf("%s: used %v", name, used)
		}
		sameAnswers(t, d, again, addrs)
	}
}

// Of a file that is malformed nothing is kept, nor of one whose alternate file
// was not there.
func TestNotCached(t *testing.T) {
	c := newCache()
	broken := source(t)
	broken.Line = broken.Line[:20]
	d := cached(broken, c, Options{})
	allAddresses(d)
	if d.Err() == nil || d.Save() != nil || c.saved != 0 {
		t.Errorf("malformed: %v, saved %d times", d.Err(), c.saved)
	}
	d = cached(source(t), c, Options{})
	allAddresses(d)
	d.altFile()
	if d.Save() != nil || c.saved != 0 {
		t.Errorf("no alternate file: saved %d times", c.saved)
	}
}

// What is damaged, of another file or another version is not used.
func TestCacheDamaged(t *testing.T) {
	c := newCache()
	d := cached(source(t), c, Options{})
	addrs := allAddresses(d)
	if err := d.Save(); err != nil {
		t.Fatal(err)
	}
	key, b := c.only(t)
	for n := range b {
		if _, err := readCached(b[:n], key); err == nil {
			t.Fatalf("%d of %d bytes are taken", n, len(b))
		}
	}
	if _, err := readCached(b, [32]byte{1}); err == nil {
		t.Error("taken for another file")
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x55
		checkCache(t, bad, key, addrs)
	}
}

// checkCache asks for addresses, and checks that chains end and files and names
// are within the texts.
func checkCache(t *testing.T, b []byte, key [32]byte, addrs []uint64) {
	t.Helper()
	k, err := readCached(b, key)
	if err != nil {
		return
	}
	for _, a := range addrs {
		calls, _ := k.calls(nil, a)
		if len(calls) > len(b)/cacheFunc {
			t.Fatalf("%d calls at %#x", len(calls), a)
		}
	}
}

// FuzzCache checks that whatever a cache gives is read without harm.
func FuzzCache(f *testing.F) {
	c := newCache()
	d := cached(source(f), c, Options{})
	addrs := allAddresses(d)
	if err := d.Save(); err != nil {
		f.Fatal(err)
	}
	key, b := c.only(f)
	f.Add(b, addrs[0], addrs[len(addrs)/2])
	f.Fuzz(func(t *testing.T, b []byte, x, y uint64) {
		if len(b) >= cacheHead {
			copy(b, cacheMagic)
			copy(b[len(cacheMagic):], key[:])
		}
		checkCache(t, b, key, []uint64{x, y})
	})
}
