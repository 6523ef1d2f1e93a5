// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string // fields as type name offset size signed, or "" for EINVAL
	}{
		{"plain", "-"},
		{"plain ", "-"},
		{"e char[0x10] a; unsigned int b", "char[0x10] a 8 16 1|unsigned int b 24 4 0"},
		{"e u32 a; u32 a", "u32 a 8 4 0|u32 a 12 4 0"},
		{"e u32 a/b[2]", "u32 a/b[2] 8 4 0"},
		{"e u32 a;s64 b", "u32 a 8 4 0|s64 b 12 8 1"},
		{"e u32 a; s64 b;", "u32 a 8 4 0|s64 b 12 8 1"},
		{"e unsigned int a; int b", "unsigned int a 8 4 0|int b 12 4 1"},
		{"e char[16] name", "char[16] name 8 16 1"},
		{"e unsigned char[3] b", "unsigned char[3] b 8 3 0"},
		{"e __rel_loc char[] msg; s32 n", "__rel_loc char[] msg 8 4 1|s32 n 12 4 1"},
		{"e __data_loc unsigned char[] msg", "__data_loc unsigned char[] msg 8 4 1"},
		{"e struct thing t 20; u8 x", "struct thing t 8 20 1|u8 x 28 1 0"},
		{"", ""}, {" ", ""}, {"a/b", ""}, {"..", ""}, {":x", ""},
		{"e u32", ""}, {"e u32 a b", ""}, {"e nothing a", ""}, {"e long a", ""}, {"e struct t a", ""},
		{"e struct t a 0", ""}, {"e struct t a 9999999999", ""}, {"e struct t a x", ""}, {"e unsigned a", ""},
		{"e char[0] a", ""}, {"e char[-1] a", ""}, {"e char[9999] a", ""}, {"e char[ a", ""}, {"e int[4] a", ""},
		{"flags:x,y u32 a", ""}, {"e u32  a", ""}, {"e u32 a ", ""}, {" e u32 a", ""}, {"e u32 a\nb", ""},
		{"e __rel_loc struct a 8", ""}, {"e u32 a\"", ""},
		{"e " + strings.Repeat("u8 abcdefg;", 60), ""},
	} {
		d, err := Parse(tt.text)
		if tt.want == "" {
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%q: %+v, %v, want EINVAL", tt.text, d, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if got := fieldsText(d); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.text, got, tt.want)
		}
		if again, err := Parse(d.Text()); err != nil || !again.Same(d) {
			t.Errorf("%q: %q is not the same: %v", tt.text, d.Text(), err)
		}
	}
}

func fieldsText(d *Description) string {
	var list []string
	for _, f := range d.Fields {
		signed := "0"
		if f.Signed {
			signed = "1"
		}
		list = append(list, strings.Join([]string{f.Type, f.Name, itoa(f.Offset), itoa(f.Size), signed}, " "))
	}
	if list == nil {
		return "-"
	}
	return strings.Join(list, "|")
}

func itoa(n int) string {
	return string(bytes.TrimLeft([]byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)}, "0"))
}

func FuzzParse(f *testing.F) {
	f.Add("e u32 a; __rel_loc char[] msg")
	f.Add("e struct x y 20;char[4] z")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			if !errors.Is(err, syscall.EINVAL) {
				t.Fatal(err)
			}
			return
		}
		at := CommonSize
		for _, f := range d.Fields {
			if f.Offset != at || f.Size <= 0 {
				t.Fatalf("%+v", d)
			}
			at += f.Size
		}
		if at != CommonSize+d.MinSize {
			t.Fatalf("%+v", d)
		}
		if again, err := Parse(d.Text()); err != nil || !again.Same(d) {
			t.Fatalf("%q, then %q: %v", text, d.Text(), err)
		}
	})
}

func TestFormat(t *testing.T) {
	d, err := Parse("request u32 id; char[8] verb; __rel_loc char[] path; u64 size")
	if err != nil {
		t.Fatal(err)
	}
	want := "name: request\nID: 1700\nformat:\n" + commonFields + `
	field:u32 id;	offset:8;	size:4;	signed:0;
	field:char verb[8];	offset:12;	size:8;	signed:1;
	field:__rel_loc char[] path;	offset:20;	size:4;	signed:1;
	field:u64 size;	offset:24;	size:8;	signed:0;

print fmt: "id=%u verb=%s path=%s size=%llu", REC->id, REC->verb, __get_rel_str(path), REC->size
`
	if got := d.Format(1700); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// bit is a Switch that a test looks at.
type bit struct {
	on, closed bool
	gone       atomic.Bool
}

// gone is a bit of a program that has ended.
func gone() *bit {
	b := new(bit)
	b.gone.Store(true)
	return b
}

func (b *bit) Set(on bool) error {
	if b.gone.Load() {
		return syscall.ESRCH
	}
	b.on = on
	return nil
}

func (b *bit) Alive() bool  { return !b.gone.Load() }
func (b *bit) Close() error { b.closed = true; return nil }

// register registers an event whose description is right.
func register(t *testing.T, f *File, text string, key Key, b *bit) (int, error) {
	t.Helper()
	return f.Register(describe(t, text), false, Bit{Key: key, Switch: b})
}

func describe(t *testing.T, text string) *Description {
	t.Helper()
	d, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// record is a write: an index and data.
func record(index int, data ...byte) []byte {
	return append(binary.NativeEndian.AppendUint32(nil, uint32(index)), data...)
}

func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestLife(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	f := s.Open()
	b := new(bit)
	key := Key{Owner: 1, Addr: 0x1000, Bit: 31}
	index, err := register(t, f, "e u32 n", key, b)
	wants(t, "register", err, nil)
	if index != 0 || b.on {
		t.Errorf("index %d, bit %v", index, b.on)
	}
	_, err = f.Write(Writer{}, record(0, 1, 0, 0, 0))
	wants(t, "write while disabled", err, syscall.EBADF)
	taken := new(bit)
	_, err = register(t, f, "e u32 n", key, taken)
	wants(t, "register a bit twice", err, syscall.EADDRINUSE)
	if !taken.closed {
		t.Error("a bit that was refused is not closed")
	}
	_, err = register(t, f, "e u64 n", Key{1, 0x1008, 0}, new(bit))
	wants(t, "register other fields", err, syscall.EADDRINUSE)
	other := new(bit)
	index, err = register(t, f, "e u32 n", Key{1, 0x1008, 0}, other)
	wants(t, "register again", err, nil)
	if index != 0 {
		t.Errorf("another index, %d", index)
	}
	r, err := s.Listen(nil)
	wants(t, "listen", err, nil)
	if !b.on || !other.on {
		t.Error("the bits are not set")
	}
	late, another := new(bit), s.Open()
	_, err = register(t, another, "e u32 n", Key{2, 0x1000, 0}, late)
	wants(t, "register what is enabled", err, nil)
	if !late.on {
		t.Error("the bit of a late one is not set")
	}
	n, err := f.Write(Writer{PID: 7, TID: 8}, record(0, 1, 2, 3, 4, 5))
	wants(t, "write", err, nil)
	if n != 9 {
		t.Errorf("%d bytes", n)
	}
	for what, tt := range map[string]struct {
		data []byte
		want error
	}{
		"no index":       {[]byte{1}, syscall.EFAULT},
		"unknown index":  {record(9, 1, 2, 3, 4), syscall.ENOENT},
		"negative index": {record(-1, 1, 2, 3, 4), syscall.EINVAL},
		"short data":     {record(0, 1, 2, 3), syscall.EINVAL},
	} {
		_, err := f.Write(Writer{}, tt.data)
		wants(t, what, err, tt.want)
	}
	list, err := r.Next(context.Background())
	if err != nil || len(list) != 1 || list[0].PID != 7 || list[0].Event.Name != "e" ||
		!bytes.Equal(list[0].Data, []byte{1, 2, 3, 4, 5}) {
		t.Errorf("%+v, %v", list, err)
	}
	wants(t, "delete what is used", s.Delete("e"), syscall.EBUSY)
	wants(t, "delete what is not there", s.Delete("x"), syscall.ENOENT)
	r.Close()
	r.Close()
	if b.on {
		t.Error("the bit stays set without readers")
	}
	wants(t, "unregister", s.Unregister(key), nil)
	wants(t, "unregister twice", s.Unregister(key), syscall.ENOENT)
	if !b.closed || !s.Busy() {
		t.Errorf("closed %v, busy %v", b.closed, s.Busy())
	}
	f.Close()
	f.Close()
	if other.closed || !s.Busy() {
		t.Error("the registration ends with the file, not with the memory")
	}
	other.gone.Store(true)
	late.gone.Store(true)
	another.Close()
	if s.Busy() || !other.closed {
		t.Error("the registration stays without the memory")
	}
}

// TestLastUser: the last file takes the event along.
func TestLastUser(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	f := s.Open()
	key := Key{Owner: 1, Addr: 8}
	if _, err := register(t, f, "e u32 n", key, new(bit)); err != nil {
		t.Fatal(err)
	}
	if err := s.Unregister(key); err != nil {
		t.Fatal(err)
	}
	if s.Find("e") == nil {
		t.Error("the file still has the event")
	}
	f.Close()
	if s.Find("e") != nil || s.Busy() {
		t.Error("the event has outlived its file")
	}
	// Another one of its name may have other fields.
	f = s.Open()
	defer f.Close()
	if _, err := register(t, f, "e u64 n", key, new(bit)); err != nil {
		t.Error(err)
	}
}

// TestGone: a program that ended, found when its bit is to be set.
func TestGone(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	f := s.Open()
	defer f.Close()
	b := &bit{}
	if _, err := register(t, f, "e", Key{Owner: 1}, b); err != nil {
		t.Fatal(err)
	}
	b.gone.Store(true)
	r, err := s.Listen(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !b.closed || len(s.regs) != 0 {
		t.Errorf("closed %v, %d registrations", b.closed, len(s.regs))
	}
	if _, err := register(t, f, "e", Key{Owner: 2}, gone()); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("register memory that is not there: %v", err)
	}
}

// TestExec: a program registers the bit that was another program's, which it was itself
// before.
func TestExec(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	f := s.Open()
	defer f.Close()
	before, key := new(bit), Key{Owner: 1, Addr: 8}
	_, err := register(t, f, "e u32 n", key, before)
	wants(t, "register", err, nil)
	before.gone.Store(true)
	_, err = register(t, f, "e u32 n", key, new(bit))
	wants(t, "register after exec", err, nil)
	if !before.closed {
		t.Error("the bit of the program before is not closed")
	}
}

func TestDynamicData(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	f := s.Open()
	defer f.Close()
	if _, err := register(t, f, "e __rel_loc char[] msg; u8 n", Key{Owner: 1}, new(bit)); err != nil {
		t.Fatal(err)
	}
	if err := s.SetEnabled("e", true); err != nil {
		t.Fatal(err)
	}
	where := func(from, size int) []byte {
		return binary.NativeEndian.AppendUint32(nil, uint32(size<<16|from))
	}
	for what, tt := range map[string]struct {
		data []byte
		want error
	}{
		"a text":         {append(where(1, 3), 9, 'h', 'i', 0), nil},
		"an empty one":   {append(where(1, 0), 9), nil},
		"without an end": {append(where(1, 3), 9, 'h', 'i', '!'), syscall.EFAULT},
		"too long":       {append(where(1, 4), 9, 'h', 'i', 0), syscall.EFAULT},
		"far away":       {append(where(60000, 1), 9), syscall.EFAULT},
	} {
		_, err := f.Write(Writer{}, append(record(0), tt.data...))
		wants(t, what, err, tt.want)
	}
	wants(t, "enable what is not there", s.SetEnabled("x", true), syscall.ENOENT)
}

func TestLimits(t *testing.T) {
	s := NewSet(Limits{Events: 1, Readers: 1, Registrations: 2, Queue: 3 * (recordCost + 4)}, nil)
	f := s.Open()
	defer f.Close()
	_, err := register(t, f, "e u32 n", Key{Owner: 1}, new(bit))
	wants(t, "register", err, nil)
	_, err = register(t, f, "other", Key{Owner: 2}, new(bit))
	wants(t, "one event too many", err, syscall.EMFILE)
	_, err = register(t, f, "e u32 n", Key{Owner: 2}, new(bit))
	wants(t, "register", err, nil)
	_, err = register(t, f, "e u32 n", Key{Owner: 3}, new(bit))
	wants(t, "one registration too many", err, syscall.EMFILE)
	r, err := s.Listen(nil)
	wants(t, "listen", err, nil)
	defer r.Close()
	_, err = s.Listen(nil)
	wants(t, "one reader too many", err, syscall.EMFILE)
	own, err := s.ListenHost(nil)
	wants(t, "one of the host", err, nil)
	own.Close()
	for range 5 {
		if _, err := f.Write(Writer{}, record(0, 1, 2, 3, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(r.Take()); got != 3 || r.Lost() != 2 || s.Lost() != 2 || s.Written() != 5 {
		t.Errorf("%d records, %d and %d lost of %d", got, r.Lost(), s.Lost(), s.Written())
	}
}

// TestAtOnce: files, readers and writers at the same time.
func TestAtOnce(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 200 {
				f, b := s.Open(), new(bit)
				index, err := f.Register(&Description{Name: "e"}, false,
					Bit{Key: Key{Owner: uint64(n), Addr: uint64(i)}, Switch: b})
				if err != nil {
					t.Error(err)
				}
				r, err := s.Listen(nil)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := f.Write(Writer{}, record(index)); err != nil {
					t.Error(err)
				}
				if len(r.Take()) == 0 {
					t.Error("what was written is not there")
				}
				s.Status()
				r.Close()
				b.gone.Store(true)
				f.Close()
			}
		})
	}
	wg.Wait()
	if s.Busy() || len(s.List()) > 0 {
		t.Errorf("busy %v, %d events", s.Busy(), len(s.List()))
	}
}

// TestSeveral: one name with several formats.
func TestSeveral(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	f := s.Open()
	defer f.Close()
	addr := uint64(0)
	try := func(text string, several bool) (string, error) {
		addr += 8
		index, err := f.Register(describe(t, text), several, Bit{Key: Key{1, addr, 0}, Switch: new(bit)})
		if err != nil {
			return "", err
		}
		return f.events[index].Name, nil
	}
	for _, tt := range []struct {
		text    string
		several bool
		want    string
	}{
		{"e u32 a", true, "e.0"}, {"e u64 a", true, "e.1"}, {"e u32 a", true, "e.0"}, {"e u32 a", false, "e"},
		{"e u64 a", false, ""}, {"e.0 u32 a", false, ""}, {"e.2 s8 a", false, "e.2"}, {"e s8 b", true, "e.3"},
	} {
		got, err := try(tt.text, tt.several)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q, %v: %q, %v, want %q", tt.text, tt.several, got, err, tt.want)
		}
	}
}

// TestInherit: forked programs have what was registered before, and nothing else.
func TestInherit(t *testing.T) {
	bits := make(map[Key]*bit)
	var family []Heir
	s := NewSet(Limits{Registrations: 5}, func(map[uint64]bool) []Heir { return family })
	heir := func(owner, of, born uint64) Heir {
		return Heir{Owner: owner, Of: of, Born: Instant{Ticks: born}, Open: func(addr uint64, n uint8) (Switch, error) {
			b := new(bit)
			bits[Key{owner, addr, n}] = b
			return b, nil
		}}
	}
	f := s.Open()
	for i, at := range []uint64{10, 20} {
		_, err := f.Register(describe(t, "e"), false,
			Bit{Key: Key{1, uint64(8 * (i + 1)), 0}, Switch: new(bit), At: Instant{at, 7}})
		wants(t, "register", err, nil)
	}
	family = []Heir{heir(2, 1, 5), heir(3, 1, 15), heir(4, 1, 25)}
	wants(t, "enable", s.SetEnabled("e", true), nil)
	for key, want := range map[Key]bool{{2, 8, 0}: false, {3, 8, 0}: true, {3, 16, 0}: false, {4, 8, 0}: true,
		{4, 16, 0}: true} {
		if b := bits[key]; (b != nil && b.on) != want {
			t.Errorf("%v: %v, want %v", key, b, want)
		}
	}
	// One asks for itself; there is no room for more.
	s.Inherit(5, func(map[uint64]bool) (Heir, bool) { return heir(5, 4, 30), true })
	if len(s.regs) != 5 || s.Left() != 2 {
		t.Errorf("%d registrations, %d left out", len(s.regs), s.Left())
	}
	wants(t, "unregister what was inherited", s.Unregister(Key{3, 8, 0}), nil)
	f.Close()
	if !s.Busy() {
		t.Error("not busy while forked programs live")
	}
	if i, j := (Instant{1, 5}), (Instant{1, 6}); !i.Before(j) || j.Before(i) || i.Before(i) {
		t.Error("within a tick numbers tell")
	}
}
