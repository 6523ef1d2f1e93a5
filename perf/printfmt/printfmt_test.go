// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// testFields is a tracepoint with a field of every kind.
const testFields = `name: test
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:int i;	offset:8;	size:4;	signed:1;
	field:unsigned int u;	offset:12;	size:4;	signed:0;
	field:long l;	offset:16;	size:8;	signed:1;
	field:void * p;	offset:24;	size:8;	signed:0;
	field:char comm[16];	offset:32;	size:16;	signed:0;
	field:unsigned long args[2];	offset:48;	size:16;	signed:0;
	field:u8 mac[6];	offset:64;	size:6;	signed:0;
	field:short s;	offset:70;	size:2;	signed:1;
	field:__data_loc char[] name;	offset:72;	size:4;	signed:0;
	field:__data_loc unsigned char[] data;	offset:76;	size:4;	signed:0;
	field:u8 v4[4];	offset:80;	size:4;	signed:0;
	field:char uuid[16];	offset:84;	size:16;	signed:0;

print fmt: `

func testRaw() []byte {
	o := perf.LittleEndian
	b := make([]byte, 8, 128)
	b = o.AppendUint32(b, ^uint32(4)) // i = -5
	b = o.AppendUint32(b, 0xdeadbeef)
	b = o.AppendUint64(b, ^uint64(0)) // l = -1
	b = o.AppendUint64(b, 0xffffffff81000010)
	b = append(b, "bash\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	b = o.AppendUint64(o.AppendUint64(b, 10), 11)
	b = append(b, 0, 0x1b, 0x21, 1, 2, 3)
	b = append(b, 0xfe, 0xff) // s = -2
	b = o.AppendUint32(b, 6<<16|100)
	b = o.AppendUint32(b, 3<<16|106)
	b = append(b, 127, 0, 0, 1)
	for i := range 16 {
		b = append(b, byte(i))
	}
	return append(b, "hello\x00\x01\x02\x03"...)
}

func testOptions() *Options {
	return &Options{
		Symbol: func(addr uint64) (string, uint64, bool) {
			return "start", addr - 0xffffffff81000000, addr>>32 == 0xffffffff
		},
		String: func(addr uint64) (string, bool) { return "printk", addr == 0xffffffff81000010 },
	}
}

func compile(t testing.TB, line string) (*Format, error) {
	t.Helper()
	ev, err := perfdata.ParseEventFormat([]byte(testFields + line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return Compile(ev, testOptions())
}

func TestAppend(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`"plain 100%%"`, "plain 100%"},
		{`"%d %u %ld %i", REC->i, REC->u, REC->l, REC->s`, "-5 3735928559 -1 -2"},
		{`"%x %#x %08x %-6x| %X %lx", REC->i, 10, 10, 10, REC->u, REC->l`, "fffffffb 0xa 0000000a a     | DEADBEEF ffffffffffffffff"},
		{`"%5d|%-5d|%05d|%+d|% d|%.3d", 42, 42, REC->i, 42, 42, 7`, "   42|42   |-0005|+42| 42|007"},
		{`"%hd %hu %hhx", REC->u, REC->u, REC->u`, "-16657 48879 ef"},
		{`"%o %#o %c", 8, 8, 65`, "10 010 A"},
		{`"%s|%6s|%-6s|%.2s|%.*s", REC->comm, REC->comm, REC->comm, REC->comm, 3, REC->comm`, "bash|  bash|bash  |ba|bas"},
		{`"%*d", 5, 42`, "   42"},
		{`"%*d|", -5, 42`, "42   |"},
		{`"%s", __get_str(name)`, "hello"},
		{`"%s", (REC->i < 0) ? "neg" : "pos"`, "neg"},
		{`"%s", REC->u < 0 ? "neg" : "pos"`, "pos"},
		{`"%d", (REC->u >> 20) & 0xfff`, "3562"},
		{`"%d", REC->i >> 1`, "-3"},
		{`"%d", (unsigned char)(REC->u)`, "239"},
		{`"%ld", (s8)REC->u`, "-17"},
		{`"%d", ((unsigned int) ((REC->u) >> 20))`, "3562"},
		{`"%lu %lx", REC->args[0], REC->args[1 + 0]`, "10 b"},
		{`"%lu", REC->args[2]`, "0"},
		{`"%d", 2 + 3 * 4 - 10 / 3 % 2`, "13"},
		{`"%d", 1 << 4 | 2 && !0`, "1"},
		{`"%d %d", -7 / 2, 1 / 0`, "-3 0"},
		{`"%ld %ld %d %d", REC->l / -1, 8 / REC->l, REC->i / REC->l, 7 % -1`, "1 -8 5 0"},
		{`"%d", ~0 ^ 1`, "-2"},
		{`"%d%d%d%d", 1 <= 1, 2 >= 3, 1 != 1, 1 == 1`, "1001"},
		{`"%s", __print_flags(5, "|", { 1, "A" }, { 2, "B" }, { 0x4UL, "C" })`, "A|C"},
		{`"%s", __print_flags(9, "|", { 1, "A" })`, "A|0x8"},
		{`"%s.", __print_flags(0, "|", { 1, "A" })`, "."},
		{`"%s", __print_flags(0, "|", { 0, "none" }, { 1, "A" })`, "none"},
		{`"%s %s", __print_symbolic(1, { 0, "zero" }, { 1, "one" }), __print_symbolic(7, { 0, "zero" })`, "one 0x7"},
		{`"%s", __print_symbolic(REC->i, { -5, "minus five" })`, "minus five"},
		{`"%s", __print_symbolic(3, { ENUM_NAME, "?" }, { 3, "three" }, { -1, ((void *)0) }, { })`, "three"},
		{`"%s %s", __print_hex(REC->mac, 6), __print_hex_str(__get_dynamic_array(data), __get_dynamic_array_len(data))`, "00 1b 21 01 02 03 010203"},
		{`"%s", __print_array(__get_dynamic_array(data), __get_dynamic_array_len(data), 1)`, "{0x1,0x2,0x3}"},
		{`"%s", __print_array(REC->args, 2, 8)`, "{0xa,0xb}"},
		{`"%pS %ps %p", REC->p, (void *)REC->p, REC->p`, "start+0x10 start 0xffffffff81000010"},
		{`"%pS %p", (void *)0x10, (void *)0`, "0x10 (nil)"},
		{`"%s", __print_flags(0x07000000 & (0x00040000 | 0x00080000), "|", { 0x00040000, "M" }, { 0x00080000, "D" })`, ""},
		{`"%pM %pm %pI4 %pi4", REC->mac, REC->mac, REC->v4, REC->v4`, "00:1b:21:01:02:03 001b21010203 127.0.0.1 127.0.0.1"},
		{`"%pU", REC->uuid`, "00010203-0405-0607-0809-0a0b0c0d0e0f"},
		{`"%pUL", REC->uuid`, "03020100-0504-0706-0809-0A0B0C0D0E0F"},
		{`"%pI6c", REC->uuid`, "1:203:405:607:809:a0b:c0d:e0f"},
		{`"%s", (char *)REC->p`, "printk"},
		{`"%s", REC->l`, "0xffffffffffffffff"},
		{`"%d %d %d %d", '\n', '\t', '\0', '\''`, "10 9 0 39"},
		{`"a\tb\r\\\"%%"`, "a\tb\r\\\"%"},
		{`"%d %u %u", -7 % 3, 7U / 2U, 7U % 0`, "-1 3 0"},
		{`"%s", REC->i ? REC->comm : "none"`, "bash"},
		{`"%d", REC->i > 0 ? 1 : REC->u > 0 ? 2 : 3`, "2"},
		{`"%s %s", __print_hex(REC->i ? REC->mac : REC->v4, 2), __print_hex(REC->i > 0 ? REC->mac : REC->v4, 2)`, "00 1b 7f 00"},
		{`"%u", ((u8 *)__get_dynamic_array(data))[1]`, "2"},
		{`"%u", *(u16 *)__get_dynamic_array(data)`, "513"},
		{`"%d", REC->__data_loc_name & 0xffff`, "100"},
		{`"%d %d %d", sizeof(int), sizeof(REC->comm), sizeof(char *)`, "4 16 8"},
		{`"%d", __builtin_expect(!!(REC->i), 0)`, "1"},
		{`"a" " b" "%d" , 'x'`, "a b120"},
		{`"%d %3d %s|%p", jiffies_to_msecs(1, (2)), 1 + SOME_ENUM, REC->p->x, *REC->p`, "?   ? ?|?"},
		{`"%d %d %d", ({ int x = (REC->i); x; }), REC->i[0], 3`, "? ? 3"},
		{`"%d %d", ` + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + ", " + strings.Repeat("-", 1000) + "1", "? ?"},
	} {
		f, err := compile(t, c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if got := string(f.Append(nil, testRaw(), perf.LittleEndian)); got != c.want {
			t.Errorf("%s\ngot  %q\nwant %q", c.line, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		line string
		want error
	}{
		{``, ErrSyntax}, {`"`, ErrSyntax}, {`REC->i`, ErrSyntax}, {`"%d"`, ErrSyntax}, {`"", 1`, ErrSyntax},
		{`"%d", REC->nope`, ErrSyntax}, {`"%d", REC`, ErrSyntax}, {`"%d", (1`, ErrSyntax}, {`"%d", 1 +`, ErrSyntax},
		{`"%d", 0x`, ErrSyntax}, {`"%d", 'x`, ErrSyntax}, {`"%`, ErrSyntax}, {`"%d", 1 2`, ErrSyntax}, {`"%l"`, ErrSyntax},
		{`"%f", 1`, ErrUnsupported}, {`"%d", x)`, ErrSyntax}, {`"%d", x, (`, ErrSyntax},
	} {
		if f, err := compile(t, c.line); f != nil || !errors.Is(err, c.want) {
			t.Errorf("%.40s: %v, want %v", c.line, err, c.want)
		}
	}
}

// TestShort: data that is cut short prints zeros and empty strings.
func TestShort(t *testing.T) {
	f, err := compile(t, `"%d %s %s %s %lu %s", REC->i, REC->comm, __get_str(name), __print_hex(REC->mac, 6), REC->args[1], __print_array(REC->args, 2, 8)`)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Append(nil, nil, perf.LittleEndian)); got != "0    0 {}" {
		t.Errorf("%q", got)
	}
}

// TestBounded: a format that repeats a field cannot make endless text.
func TestBounded(t *testing.T) {
	f, err := compile(t, `"`+strings.Repeat("%99999d", 5000)+`"`+strings.Repeat(", 1", 5000))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(f.Append(nil, nil, perf.LittleEndian)); got != maxText {
		t.Errorf("%d bytes", got)
	}
}

// TestKernel compiles what the running kernel has. A few lines need the
// kernel's own functions and constants.
func TestKernel(t *testing.T) {
	testutil.Require(t, testutil.Tracefs)
	files, err := filepath.Glob("/sys/kernel/tracing/events/*/*/format")
	if err != nil || len(files) == 0 {
		t.Fatal("no format files", err)
	}
	failed := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := perfdata.ParseEventFormat(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := Compile(ev, nil); err != nil {
			failed++
			t.Logf("%s: %v", filepath.Base(filepath.Dir(name)), err)
		}
	}
	if failed*200 > len(files) {
		t.Errorf("%d of %d cannot be printed", failed, len(files))
	}
}

// FuzzCompile: a format xor an error, and a format prints bounded text, the
// same each time, whatever the data.
func FuzzCompile(f *testing.F) {
	for _, line := range []string{
		`"%d %s", REC->i, REC->comm`, `"%s", __print_flags(REC->u, "|", { 1, "A" })`, `"%pI4 %*d", REC->v4, 3, (u8)REC->u`,
		`"%s", REC->i ? __get_str(name) : "x"`, `"%s", __print_array(REC->args, 2, 8)`, `"%u", ((u8 *)__get_dynamic_array(data))[1]`,
	} {
		f.Add(line, testRaw(), false)
	}
	f.Fuzz(func(t *testing.T, line string, raw []byte, big bool) {
		if strings.ContainsAny(line, "\n") {
			return
		}
		format, err := compile(t, line)
		if (format == nil) == (err == nil) {
			t.Fatalf("value %v and error %v", format, err)
		}
		if err != nil {
			return
		}
		o := perf.LittleEndian
		if big {
			o = perf.BigEndian
		}
		a := format.Append(nil, raw, o)
		b := format.Append([]byte("x"), raw, o)
		if string(b[1:]) != string(a) || len(a) > maxText {
			t.Fatalf("%q and then %q", a, b)
		}
	})
}

func BenchmarkSwitch(b *testing.B) {
	f, err := compile(b, `"prev_comm=%s prev_pid=%d ==> next_comm=%s %s", REC->comm, REC->i, REC->comm, __print_flags(REC->u & 5, "|", { 1, "S" }, { 2, "D" }, { 4, "T" })`)
	if err != nil {
		b.Fatal(err)
	}
	raw := testRaw()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = f.Append(dst[:0], raw, perf.LittleEndian)
	}
}
