// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// cutRecording is a recording into files, and beside them into one that is not cut.
type cutRecording struct {
	t     *testing.T
	dir   string
	parts []string
	ended []Segment
	whole *perfdata.Writer
	files []*os.File
	last  *perfdata.Features
}

func (c *cutRecording) create(name string) *os.File {
	f, err := os.Create(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	c.files = append(c.files, f)
	return f
}

// next is an output that is also written to the whole.
func (c *cutRecording) next() (Output, error) {
	name := fmt.Sprintf("part%03d", len(c.parts))
	c.parts = append(c.parts, filepath.Join(c.dir, name))
	return Output{Open: func(events []*perf.Event, o *perfdata.WriterOptions) (Sink, error) {
		w, err := perfdata.NewWriter(c.create(name), events, o)
		if err != nil {
			return nil, err
		}
		first := c.whole == nil
		if first {
			if c.whole, err = perfdata.NewWriter(c.create("whole"), events, o); err != nil {
				return nil, err
			}
		}
		return &tee{Writer: w, c: c, both: first}, nil
	}}, nil
}

// tee writes what is not a beginning in the middle of the recording to the whole as well.
type tee struct {
	*perfdata.Writer
	c    *cutRecording
	both bool
}

func (w *tee) also(err error, write func() error) error {
	if err != nil || !w.both {
		return err
	}
	return write()
}

func (w *tee) Write(b ...[]byte) error {
	return w.also(w.Writer.Write(b...), func() error { return w.c.whole.Write(b...) })
}

func (w *tee) WriteRecord(rec perf.Record, ev *perf.Event) error {
	return w.also(w.Writer.WriteRecord(rec, ev), func() error { return w.c.whole.WriteRecord(rec, ev) })
}

func (w *tee) WriteRound(b ...[]byte) error {
	return w.also(w.Writer.WriteRound(b...), func() error { return w.c.whole.WriteRound(b...) })
}

func (w *tee) FinishRound() error {
	err := w.also(w.Writer.FinishRound(), w.c.whole.FinishRound)
	w.both = true // the beginning is over
	return err
}

func (w *tee) Commit() error { return w.also(w.Writer.Commit(), w.c.whole.Commit) }

func (w *tee) WriteGantry(b []byte) error {
	return w.also(w.Writer.WriteGantry(b), func() error { return w.c.whole.WriteGantry(b) })
}

func (w *tee) Close(f *perfdata.Features) error {
	w.c.last = f
	return w.Writer.Close(f)
}

// script is what perf prints of the samples of files.
func script(t *testing.T, paths ...string) (list []string) {
	for _, path := range paths {
		out := perfRun(t, "script", "-i", path, "-F", "comm,pid,tid,cpu,time,event,ip,sym,dso")
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" {
				list = append(list, line)
			}
		}
	}
	slices.Sort(list)
	return list
}

// TestSegments: files of a recording, cut again and again while programs come and go, have
// the same samples with the same names as one that is not cut, and perf reads each.
func TestSegments(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf"))
	c := &cutRecording{t: t, dir: t.TempDir()}
	for _, text := range []string{
		"while :; do ls -R /usr/include > /dev/null; done",
		"while :; do (true; exec sh -c 'ls / > /dev/null; :'); done",
		"i=0; while :; do i=$((i+1)); done",
	} {
		cmd := exec.Command("sh", "-c", text)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	var r *Recorder
	o := Options{Groups: groups(t, "cpu-clock"), Duration: 4 * time.Second, CmdLine: []string{"gantry", "record"},
		Progress: func(Progress) { r.Cut() },
		Segments: &Segments{Next: c.next, Done: func(_ Output, s Segment) error {
			c.ended = append(c.ended, s)
			return nil
		}}}
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first, err := c.next()
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.Run(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.whole.Close(c.last); err != nil {
		t.Fatal(err)
	}
	var samples, size uint64
	for _, f := range c.files {
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f.Name(), "whole") {
			size += uint64(info.Size())
		}
		f.Close()
	}
	for _, s := range c.ended {
		samples += s.Samples
	}
	if len(c.parts) < 5 || len(c.ended) != len(c.parts)-1 || samples >= res.Samples || uint64(res.Bytes) != size {
		t.Errorf("%d files, %d ended with %d of %d samples, %d of %d bytes", len(c.parts), len(c.ended), samples,
			res.Samples, res.Bytes, size)
	}
	whole, parts := script(t, filepath.Join(c.dir, "whole")), script(t, c.parts...)
	if uint64(len(whole)) != res.Samples {
		t.Errorf("perf prints %d of %d samples", len(whole), res.Samples)
	}
	forgive(whole, parts)
	if !slices.Equal(whole, parts) {
		t.Errorf("%d samples in one file, %d in %d; only in one file:\n%s\nonly in many:\n%s", len(whole), len(parts),
			len(c.parts), missing(whole, parts), missing(parts, whole))
	}
}

// forgive makes those lines of a equal to those of b that have no mapping in a only. perf does
// not find those of a thread whose number was another process's before in the same file, which
// happens where numbers are given again within seconds.
func forgive(a, b []string) {
	const unknown = "[unknown] ([unknown])"
	if len(a) != len(b) {
		return
	}
	for i := range a {
		if prefix, ok := strings.CutSuffix(a[i], unknown); ok && strings.HasPrefix(b[i], prefix) {
			a[i] = b[i]
		}
	}
}

// missing is some of what is in a and not in b, both in order.
func missing(a, b []string) string {
	var list []string
	for _, line := range a {
		if _, ok := slices.BinarySearch(b, line); !ok && len(list) < 20 {
			list = append(list, line)
		}
	}
	return strings.Join(list, "\n")
}
