// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/internal/config"
)

// switchValue says when a recording goes on in another file: on SIGUSR2, after a time or
// from a size on. It calls itself a bool, for then the help shows that a value comes after
// "=" only.
type switchValue struct {
	text  string
	every time.Duration
	size  int64
}

// switchSignal is the value of --switch-output without one.
const switchSignal = "signal"

func (v *switchValue) String() string { return v.text }
func (v *switchValue) Type() string   { return "bool" }

func (v *switchValue) Set(s string) error {
	*v = switchValue{text: s}
	if s == switchSignal {
		return nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		v.every = d
		return nil
	}
	size, err := config.ParseSize("--switch-output", s)
	if err != nil || size == 0 {
		return errors.New("write signal, a time such as 30s, or a size such as 100M")
	}
	v.size = size
	return nil
}

// sizeValue is a size in bytes, more than 0.
type sizeValue int64

func (v *sizeValue) Type() string { return "size" }

// String is "0" for none, which the help leaves out.
func (v *sizeValue) String() string { return fmt.Sprint(int64(*v)) }

func (v *sizeValue) Set(s string) error {
	n, err := config.ParseSize("it", s)
	if err != nil || n == 0 {
		return errors.New("write a size above 0, such as 100M or 2G")
	}
	*v = sizeValue(n)
	return nil
}

// checkSegments refuses flags about files that do not go together.
func (f *recordFlags) checkSegments() error {
	switch {
	case f.maxFiles < 0:
		return errors.New("--max-files: write how many files are kept, 1 or more")
	case f.maxFiles > 0 && f.switching.text == "":
		return errors.New("--max-files is for --switch-output")
	case f.switching.text != "" && f.output == "-":
		return errors.New("--switch-output needs files: name one with -o")
	}
	return nil
}

// segments are the files of a recording that goes on in another one now and then. FILE is
// the one that is written; one that has ended is FILE.TIME, as perf calls it.
type segments struct {
	flags *recordFlags
	say   *recordReport
	out   *recordOutput
	files []string // that have ended, the oldest first
	gone  int      // removed by --max-files
	since time.Time
}

// options has the recorder ask for files.
func (s *segments) options(o *capture.Options) {
	if s.flags.switching.text != "" {
		o.Segments = &capture.Segments{Next: s.next, Done: s.done}
	}
}

// stampLayout is the time in the name of a file, up to hundredths of a second.
const stampLayout = "20060102150405.00"

// stamp gives the file that has ended its name.
func (s *segments) stamp() error {
	base := s.flags.output + "." + strings.ReplaceAll(time.Now().Format(stampLayout), ".", "")
	name := base
	for i := 1; ; i++ {
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s-%d", base, i)
	}
	if err := os.Rename(s.flags.output, name); err != nil {
		return err
	}
	s.files = append(s.files, name)
	s.say.segment(name)
	return nil
}

// next begins another file.
func (s *segments) next() (capture.Output, error) {
	if err := s.stamp(); err != nil {
		return capture.Output{}, err
	}
	s.since = time.Now()
	out, err := os.OpenFile(s.flags.output, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return capture.Output{}, outputError(err)
	}
	s.out.file, s.out.older, s.out.isNew = out, "", true
	s.out.Output = capture.Output{File: out}
	return s.out.Output, nil
}

// done closes a file, and removes those that are too many.
func (s *segments) done(out capture.Output, _ capture.Segment) error {
	err := out.File.Close()
	// The one that is written counts, and it will have a name of its own.
	for s.flags.maxFiles > 0 && len(s.files) >= s.flags.maxFiles {
		err = errors.Join(err, os.Remove(s.files[0]))
		s.files = s.files[1:]
		s.gone++
	}
	return err
}

// end gives the last file its name, and says where the recording is.
func (s *segments) end() (into string, err error) {
	if s.flags.switching.text == "" {
		return s.flags.output, nil
	}
	if err := s.stamp(); err != nil {
		return "", outputError(err)
	}
	into = fmt.Sprintf("%s.* (%s", s.flags.output, plural(len(s.files), "file", "files"))
	if s.gone > 0 {
		into += fmt.Sprintf("; the first %d were removed, --max-files", s.gone)
	}
	return into + ")", nil
}

// watch cuts the recording and ends it as the flags say; progress is called now and then.
// The caller calls stop when the recording has ended.
func (s *segments) watch(ctx context.Context, cut func()) (
	_ context.Context, progress func(capture.Progress), stop func(),
) {
	ctx, cancel := context.WithCancel(ctx)
	s.since = time.Now()
	end := func() {}
	if s.flags.switching.text == switchSignal {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGUSR2)
		quit, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-signals:
					cut()
				case <-quit:
					return
				}
			}
		}()
		end = func() { signal.Stop(signals); close(quit); <-done }
	}
	sw := &s.flags.switching
	progress = func(p capture.Progress) {
		if sw.size > 0 && p.FileBytes >= sw.size || sw.every > 0 && time.Since(s.since) >= sw.every {
			cut()
		}
		if s.flags.maxSize > 0 && p.Bytes >= int64(s.flags.maxSize) {
			s.say.full()
			cancel()
		}
	}
	return ctx, progress, func() { end(); cancel() }
}

// segment says that a file has ended.
func (r *recordReport) segment(name string) {
	if r.verbose {
		r.clear()
		r.note("written: " + filepath.Clean(name))
	}
}

// full says that the recording ends for its size, once.
func (r *recordReport) full() {
	if !r.ended {
		r.ended = true
		r.clear()
		r.note("the recording is as large as --max-size says, and ends")
	}
}
