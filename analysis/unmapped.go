// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"io"

	"github.com/gantry-tools/gantry/perf"
)

// UserSamples counts the samples of a recording that fell in user space.
type UserSamples struct {
	All uint64
	// Unmapped are those in no mapping that their process had then, as far as
	// the recording tells: the recorder did not learn of the mapping, or of the
	// process.
	Unmapped uint64
}

// CountUserSamples reads the recording to its end. It opens no binary: what the
// recorder missed is the same on every machine, and with every recorder that
// writes perf.data.
func (s *Session) CountUserSamples() (UserSamples, error) {
	var n UserSamples
	s.leafOnly = true
	for {
		it, err := s.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if it.Sample == nil || it.Sample.Misc.CPUMode() != perf.MiscUser {
			continue
		}
		n.All++
		if it.Thread == nil || it.Thread.Process.Maps().Find(it.Sample.IP) == nil {
			n.Unmapped++
		}
	}
}
