// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
)

// Options of Run and WriteText.
type Options struct {
	// Slices come until the recording ends; Err is then why, nil if it was to.
	Slices <-chan analysis.Slice
	Err    func() error
	// Window is how many seconds are added up.
	Window time.Duration
	Status func() Status
}

// Run shows a live recording in a terminal, from the first table on, until the user ends it,
// ctx does, or the recording.
// The terminal is left as it was.
func Run(ctx context.Context, in io.Reader, out io.Writer, o *Options, first Level) error {
	m := newModel(NewWindow(o.Window), o.Status, first)
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s, ok := <-o.Slices:
				if !ok {
					p.Send(endMsg{o.Err()})
					return
				}
				p.Send(sliceMsg(s))
			case <-quit:
				return
			}
		}
	}()
	_, err := p.Run()
	close(quit)
	<-done
	if err = asked(ctx, err); err == nil {
		err = m.ended
	}
	return err
}

// Browse shows a profile that does not change until the user ends it, or ctx does. name is
// where it is from.
func Browse(ctx context.Context, in io.Reader, out io.Writer, p *profile.Profile, name string) error {
	w := NewProfile(p)
	m := newModel(w, func() Status { return Status{Event: w.eventName(), Note: name} }, Containers)
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	return asked(ctx, err)
}

// asked is an error, unless the screen ended for it was asked to.
func asked(ctx context.Context, err error) error {
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// TextOptions of WriteText.
type TextOptions struct {
	Level Level
	// Every is the time from one table to the next, Tables how many there are, 0 without end;
	// Rows is how many rows each has at most, 0 all of them, Width how wide lines are, 0 wide
	// enough for most.
	Every  time.Duration
	Tables int
	Rows   int
	Width  int
}

// wide is how wide lines are where there is no terminal.
const wide = 132

// WriteText writes tables one after the other, as top -b does.
func WriteText(ctx context.Context, w io.Writer, o *Options, t *TextOptions) error {
	window := NewWindow(o.Window)
	ticker := time.NewTicker(t.Every)
	defer ticker.Stop()
	width := t.Width
	if width == 0 {
		width = wide
	}
	for n := 0; t.Tables == 0 || n < t.Tables; {
		select {
		case s, ok := <-o.Slices:
			if !ok {
				return o.Err()
			}
			window.Add(s, time.Now())
		case now := <-ticker.C:
			window.Forget(now)
			if len(window.slices) == 0 && n == 0 {
				continue // it has just begun
			}
			n++
			if err := writeTable(w, window.Table(t.Level, Selection{}), o.Status(), t.Rows, width); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func writeTable(w io.Writer, t *Table, status Status, rows, width int) error {
	if _, err := fmt.Fprintf(w, "%s\n\n%s\n", t.Summary(&status, width), t.Heading(width)); err != nil {
		return err
	}
	for i := range t.Rows {
		if rows > 0 && i == rows {
			if _, err := fmt.Fprintf(w, "(%d more)\n", len(t.Rows)-rows); err != nil {
				return err
			}
			break
		}
		if _, err := fmt.Fprintln(w, t.Line(i, width)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
