// SPDX-License-Identifier: Apache-2.0

package ctf

import (
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens/events"
)

// record makes a record of an event that is described so.
func record(t *testing.T, set *events.Set, text string, data []byte, at time.Duration) *events.Record {
	t.Helper()
	d, err := events.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	who := events.Writer{TID: 77, Time: uint64(at)}
	return &events.Record{Writer: who, Event: set.Add("user_events", d, nil), Data: data}
}

// TestBabeltrace: babeltrace2 prints what was written.
func TestBabeltrace(t *testing.T) {
	testutil.Require(t, testutil.Tool("babeltrace2"))
	dir := filepath.Join(t.TempDir(), "trace")
	w, err := Create(dir, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	set := events.NewSet(events.Limits{}, nil)
	ne := binary.NativeEndian
	text := ne.AppendUint32(nil, 6<<16|4) // behind n
	text = append(ne.AppendUint32(text, 0xfffffffe), "hello\x00"...)
	const start = 42 * time.Nanosecond
	for i, r := range []*events.Record{
		record(t, set, "numbers u8 a; s16 b; u32 c; s64 event", append([]byte{200, 0xff, 0xff},
			append(ne.AppendUint32(nil, 7), ne.AppendUint64(nil, ^uint64(8))...)...), start),
		record(t, set, "texts __rel_loc char[] msg; s32 n", text, start+time.Second),
		record(t, set, "arrays char[4] verb; struct x y 3", []byte("GET\x00\x01\x02\x03"), start+2*time.Second),
		record(t, set, "empty", nil, start+time.Second), // later, with an earlier time
	} {
		if err := w.Write("shop", r); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			w.Lost(3)
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("babeltrace2", "--clock-gmt", "--clock-date", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"2023-11-14 22:13:20.000000042", "user_events.shop:numbers: { vtid = 77 }, { a = 200, b = -1, c = 7, event = -9 }",
		`user_events.shop:texts: { vtid = 77 }, { msg = "hello", n = -2 }`,
		`user_events.shop:arrays: { vtid = 77 }, { verb = "GET", y = [ [0] = 1, [1] = 2, [2] = 3 ] }`,
		"user_events.shop:empty: { vtid = 77 }",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if _, err := Create(dir, time.Time{}); err == nil {
		t.Error("a trace is written over another")
	}
}
