// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"testing"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// TestIDOfAPath: the recording's list of build-ids by path counts for paths
// that had one content.
func TestIDOfAPath(t *testing.T) {
	id := make([]byte, 20)
	id[0] = 7
	var list []perfdata.BuildIDEntry
	for _, path := range []string{"/one", "/two", "/late"} {
		list = append(list, perfdata.BuildIDEntry{Path: path, ID: id})
	}
	inode := func(pid int32, path string, ino uint64) *perf.Mmap2 {
		return &perf.Mmap2{PID: pid, TID: pid, Addr: ino << 32, Len: 4096, Prot: 5, Filename: path, Ino: ino}
	}
	r := newRecording(t, 0)
	r.add(
		inode(1, "/one", 1), inode(2, "/one", 1), inode(1, "/two", 2), inode(1, "/two", 3), inode(1, "/late", 4), sample(1, 0),
		inode(2, "/late", 5), sample(1, 0),
	)
	s := r.open(&perfdata.Features{BuildIDs: list}, nil)
	for _, want := range []string{"[/one 1 true] [/two 2 false] [/two 3 false] [/late 4 true]", "[/one 1 true] [/two 2 false] [/two 3 false] [/late 4 false] [/late 5 false]"} {
		it, err := s.Next()
		for ; err == nil && it.Sample == nil; it, err = s.Next() {
		}
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range s.Timeline.Files() {
			got += fmt.Sprintf(" [%s %d %v]", f.Path, f.Ino, !s.ref(f).BuildID.IsZero())
		}
		if got[1:] != want {
			t.Errorf("%s, want %s", got[1:], want)
		}
	}
}
