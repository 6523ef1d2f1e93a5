// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gantry-tools/gantry/perf"
)

func TestTracingData(t *testing.T) {
	for _, o := range orders {
		want := testTracing(o)
		b := want.Append(nil)
		got, err := ParseTracingData(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(TracingData{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", o, diff)
		}
		f := got.Event(1500)
		if f == nil || f.System != "net" || f.Name != "net_dev_queue" || got.Event(1) != nil {
			t.Errorf("event 1500 is %+v", f)
		}
		for n := range b {
			_, err := ParseTracingData(b[:n])
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrFormat) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
}

// TestTracingDefaults: what a recorder need not know.
func TestTracingDefaults(t *testing.T) {
	got, err := ParseTracingData((&TracingData{}).Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "0.6" || got.LongSize != 8 || got.PageSize != 4096 {
		t.Errorf("%+v", got)
	}
	old := &TracingData{Version: "0.5", LongSize: 4}
	if got, err := ParseTracingData(old.Append(nil)); err != nil || got.LongSize != 4 {
		t.Errorf("version 0.5: %+v, %v", got, err)
	}
}

func TestEventFormat(t *testing.T) {
	f, err := ParseEventFormat([]byte(switchFormat))
	if err != nil {
		t.Fatal(err)
	}
	want := []Field{
		{Name: "common_type", Type: "unsigned short", Size: 2, Common: true},
		{Name: "common_flags", Type: "unsigned char", Offset: 2, Size: 1, Common: true},
		{Name: "common_preempt_count", Type: "unsigned char", Offset: 3, Size: 1, Common: true},
		{Name: "common_pid", Type: "int", Offset: 4, Size: 4, Signed: true, Common: true},
		{Name: "prev_comm", Type: "char", Offset: 8, Size: 16, Array: 16},
		{Name: "prev_pid", Type: "pid_t", Offset: 24, Size: 4, Signed: true},
		{Name: "prev_prio", Type: "int", Offset: 28, Size: 4, Signed: true},
		{Name: "prev_state", Type: "long", Offset: 32, Size: 8, Signed: true},
	}
	if diff := cmp.Diff(want, f.Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if f.ID != 372 || f.Name != "sched_switch" || f.Print != `"prev_comm=%s prev_pid=%d", REC->prev_comm, REC->prev_pid` {
		t.Errorf("format is %+v", f)
	}
	for _, bad := range []string{"", "name: x\n", "ID: 1\n", "name: x\nID: -1\n", "name: x\nID: 1\nformat:\n\tfield:int;\toffset:0;\n",
		"name: x\nID: 1\nformat:\n\tfield:int a;\toffset:99999999;\n"} {
		if f, err := ParseEventFormat([]byte(bad)); f != nil || !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, %v", bad, f, err)
		}
	}
}

func TestAppendFields(t *testing.T) {
	for _, o := range orders {
		td, err := ParseTracingData(testTracing(o).Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		common := make([]byte, 8)

		b := append(bytes.Clone(common), "bash\x00garbage\x00\x00\x00\x00"...)
		b = o.AppendUint32(o.AppendUint32(b, 12), ^uint32(0))
		b = o.AppendUint64(b, 2)
		check(t, td.Event(372), b, o, "prev_comm=bash prev_pid=12 prev_prio=-1 prev_state=2")
		check(t, td.Event(372), b[:30], o, "prev_comm=bash prev_pid=12 prev_prio=? prev_state=?")

		b = o.AppendUint32(o.AppendUint64(bytes.Clone(common), 0xffff888000000000), 60)
		b = o.AppendUint32(b, 5<<16|32)
		b = append(o.AppendUint16(o.AppendUint16(b, 80), 443), 10, 0, 0, 1)
		b = append(b, "eth0\x00"...)
		check(t, td.Event(1500), b, o, "skbaddr=0xffff888000000000 len=60 name=eth0 ports=[80 443] addr=0a000001")
		o.PutUint32(b[20:], 500<<16|32)
		check(t, td.Event(1500), b, o, "skbaddr=0xffff888000000000 len=60 name=? ports=[80 443] addr=0a000001")

		b = o.AppendUint32(bytes.Clone(common), 8<<16|4)
		b = o.AppendUint32(o.AppendUint32(append(b, 0, 0, 0, 0), 7), 9)
		check(t, td.Event(1501), b, o, "list=[7 9]")
	}
}

func check(t *testing.T, f *EventFormat, raw []byte, o perf.Order, want string) {
	t.Helper()
	if got := string(f.AppendFields(nil, raw, o)); got != want {
		t.Errorf("%s, %v: %q, want %q", f.Name, o, got, want)
	}
}

func TestFieldUint(t *testing.T) {
	raw := []byte{0x80, 0xff, 1, 2, 3, 4, 5, 6, 7, 8}
	for _, tt := range []struct {
		f    Field
		want uint64
		ok   bool
	}{
		{Field{Size: 1}, 0x80, true},
		{Field{Size: 1, Signed: true}, ^uint64(0x7f), true},
		{Field{Size: 2}, 0xff80, true},
		{Field{Offset: 2, Size: 4}, 0x04030201, true},
		{Field{Offset: 2, Size: 8}, 0x0807060504030201, true},
		{Field{Offset: 3, Size: 8}, 0, false},
		{Field{Offset: 0, Size: 3}, 0, false},
		{Field{Offset: 11, Size: 1}, 0, false},
	} {
		if got, ok := tt.f.Uint(raw, perf.LittleEndian); got != tt.want || ok != tt.ok {
			t.Errorf("%+v: %#x, %v", tt.f, got, ok)
		}
	}
}

// TestPrintFormatLines: the kernel does not escape newlines in the line.
func TestPrintFormatLines(t *testing.T) {
	f, err := ParseEventFormat([]byte("name: x\nID: 1\nformat:\n\nprint fmt: \"a\nname: y\", REC->z\n"))
	if err != nil || f.Name != "x" || f.Print != "\"a\nname: y\", REC->z" {
		t.Errorf("%+v, %v", f, err)
	}
}
