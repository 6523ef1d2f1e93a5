// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestStream(t *testing.T) {
	s := NewSet(DefaultLimits, nil)
	one := s.Add("marker", describe(t, "one u8 a; struct x y 2"), nil)
	two := s.Add("user_events", describe(t, "two"), nil)
	const at = 5_000_000_006
	list := []Record{
		{Writer: Writer{PID: 4, TID: 1, Time: at}, Event: one, Data: []byte{1, 2, 3}},
		{Writer: Writer{TID: 2, Time: at}, Event: two},
		{Writer: Writer{TID: 3, Time: at}, Event: one, Data: []byte{4, 5, 6, 7}},
	}
	var e Encoder
	b := e.Append(nil, list[:2], 0)
	b = e.Append(b, list[2:], 9)
	d := NewDecoder(bytes.NewReader(b))
	got, err := d.Next()
	if err != nil || len(got) != len(list) {
		t.Fatal(len(got), err)
	}
	for i, r := range got {
		if r.Writer != list[i].Writer || !bytes.Equal(r.Data, list[i].Data) ||
			r.Event.System != list[i].Event.System || !r.Event.Same(&list[i].Event.Description) {
			t.Errorf("%+v, want %+v", r, list[i])
		}
	}
	if _, err := d.Next(); !errors.Is(err, io.EOF) || d.Lost() != 9 {
		t.Errorf("%v, %d lost", err, d.Lost())
	}
}

func FuzzDecoder(f *testing.F) {
	s := NewSet(DefaultLimits, nil)
	d, err := Parse("e u32 a; __rel_loc char[] b")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(new(Encoder).Append(nil, []Record{{Event: s.Add("x", d, nil), Data: make([]byte, 9)}}, 1))
	f.Add([]byte{8, 0, 0, 0, 3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder(bytes.NewReader(b))
		for {
			list, err := d.Next()
			for i := range list {
				_ = list[i].Text()
			}
			if err != nil {
				return
			}
		}
	})
}
