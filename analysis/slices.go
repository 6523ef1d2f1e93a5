// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"io"
	"time"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Slice is the samples of some time.
type Slice struct {
	*profile.Profile
	// From and To are times of the recording's clock, in nanoseconds. To is the time of the
	// last record: what is later is in the next slice.
	From, To uint64
}

// Slices reads the recording to its end, as Collect does, and adds its samples up over and
// over: emit gets a profile of its own for about each d, none for a time without samples.
// Nothing is kept of a slice that was given. An error of emit ends it.
//
// It is for streams that are read while they are written, which are one round late.
func (s *Session) Slices(o CollectOptions, d time.Duration, emit func(Slice) error) error {
	var from uint64
	for {
		c := s.newCollector(o)
		err := c.collect(d)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		c.finish()
		if c.first != 0 {
			if from == 0 {
				from = c.first
			}
			if err := emit(Slice{c.b.Profile(), from, c.last}); err != nil {
				return err
			}
			from = c.last
		}
		if err != nil {
			s.KeepLines()
			return nil
		}
	}
}

// newCollector is a collector without samples.
func (s *Session) newCollector(o CollectOptions) *collector {
	o.Inline = o.Inline && o.Stacks
	c := &collector{
		s: s, o: o, b: profile.NewBuilder(), epoch: 1,
	}
	c.out = c.b.NewBatch()
	switch {
	case o.Symbols && !o.Stacks && !o.Addresses && !o.detailed():
		c.sites = newSites()
	case o.Symbols:
		c.cache = make([]frameSlot, 1<<frameBits)
	}
	for _, b := range s.binaries {
		b.forgetFrames()
	}
	s.sourceCounts = nil
	s.leafOnly, s.cgroups = !o.Stacks, o.Fields&containerFields != 0 || len(o.Definitions) > 0
	s.before, s.renamed = c.flush, c.forgetLabels
	return c
}

// collect adds samples up until there are none, which is io.EOF, or until they are of longer
// than d, if that is not 0.
func (c *collector) collect(d time.Duration) error {
	for d == 0 || c.first == 0 || c.last-c.first < uint64(d) {
		c.leaves()
		item, err := c.s.Next()
		if err != nil {
			return err
		}
		if item.Sample != nil {
			c.sample(item)
		} else {
			c.other(item)
		}
	}
	return nil
}
