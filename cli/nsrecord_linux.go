// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/ctf"
	"github.com/gantry-tools/gantry/tracens/events"
)

func (f *nsFlags) recordCmd(e *env) *cobra.Command {
	var output string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "record [flags] NAME",
		Short: "write the events of a namespace into a trace for babeltrace2",
		Long: `Write the events of a namespace into a directory, a trace of the Common Trace
Format 1.8, which babeltrace2 and Trace Compass read, until a signal.`,
		Example: `  gantry ns record -o trace shop
  babeltrace2 trace`,
		Args: nsArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := f.path(args[0], "records")
			if err != nil {
				return f.explain(args[0], err)
			}
			fd, err := sys.Open(file, os.O_RDONLY)
			if err != nil {
				return f.explain(args[0], err)
			}
			w, err := ctf.Create(output, sys.MonotonicTime(0))
			if err != nil {
				return errors.Join(hint.Wrap(err, "name a directory that is not there with -o"), fd.Close())
			}
			r := &nsRecorder{name: args[0], to: w}
			err = r.record(cmd.Context(), duration, fd.File(file))
			err = errors.Join(f.explain(args[0], err), w.Close())
			fmt.Fprintf(e.stderr, "[ gantry ns record: %d events, %d lost into %s ]\n", r.written, r.lost,
				container.Printable(output))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "trace", "`DIRECTORY` to write, which must not be there")
	cmd.Flags().DurationVar(&duration, "duration", 0, "end after this `TIME`, such as 10s")
	return cmd
}

// nsRecorder writes the records of a namespace, in order of time.
type nsRecorder struct {
	name          string
	to            *ctf.Writer
	pending       []events.Record
	written, lost uint64
}

// Events of several programs come a little out of order: how long one is waited for.
const orderWindow = 200 * time.Millisecond

func (n *nsRecorder) take(t taken) {
	n.pending, n.lost = append(n.pending, t.list...), t.lost
	n.to.Lost(t.lost)
}

// write writes what is from before a time.
func (n *nsRecorder) write(before uint64) error {
	slices.SortStableFunc(n.pending, func(a, b events.Record) int { return cmp.Compare(a.Time, b.Time) })
	ready, _ := slices.BinarySearchFunc(n.pending, before, func(r events.Record, t uint64) int {
		return cmp.Compare(r.Time, t)
	})
	for i := range ready {
		if err := n.to.Write(n.name, &n.pending[i]); err != nil {
			return err
		}
		n.written++
	}
	n.pending = slices.Delete(n.pending, 0, ready)
	return nil
}

// flush writes what nothing older can come for.
func (n *nsRecorder) flush() error {
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	return errors.Join(n.write(uint64(now-orderWindow)), n.to.Flush())
}

// record writes events until the context or the time ends.
func (n *nsRecorder) record(ctx context.Context, d time.Duration, in io.Reader) (err error) {
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	list, failed := make(chan taken, 64), make(chan error, 1)
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go func() { failed <- takeRecords(ended, in, list) }()
	flush := time.NewTicker(orderWindow)
	defer flush.Stop()
	done := ctx.Done()
	var last <-chan time.Time
	for err == nil {
		select {
		case t := <-list:
			n.take(t)
		case <-flush.C:
			err = n.flush()
		case err = <-failed:
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
		case <-done:
			// What was written before is on its way.
			done, last = nil, time.After(orderWindow/2)
		case <-last:
			// The read waits in the kernel and ends with the process.
			return n.write(math.MaxUint64)
		}
	}
	return errors.Join(err, n.write(math.MaxUint64))
}

// taken is some records, and how many were lost so far.
type taken struct {
	list []events.Record
	lost uint64
}

// takeRecords reads records until nobody takes them any more.
func takeRecords(ended context.Context, in io.Reader, to chan<- taken) error {
	dec := events.NewDecoder(in)
	for {
		list, err := dec.Next()
		if len(list) > 0 {
			select {
			case to <- taken{list, dec.Lost()}:
			case <-ended.Done():
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}
