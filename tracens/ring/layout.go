// SPDX-License-Identifier: Apache-2.0

// Package ring is memory by which a program gives its events away without asking anybody:
// it writes, and another process reads. Many threads, and the children of a fork, may
// write at a time; one reader reads. The reader believes nothing that is in there, and
// what is no record is skipped and counted.
//
// A ring is a file of one page and a power of two of data. Numbers are of the machine's
// order. The page has in it:
//
//	offset  size  what
//	     0     8  magic, "gantryrg"
//	     8     4  version, 1
//	    16     8  size of the data, in bytes
//	    24     8  what times are of: 0 CLOCK_MONOTONIC in nanoseconds, 1 the time stamp
//	              counter of x86
//	    64     8  head: how many bytes were ever reserved; writers advance it
//	   128     8  lost: how many records found no room; writers count them
//	   192     8  tail: how many bytes were ever read; the reader advances it
//
// A record begins at a multiple of 8 bytes, and may continue at the beginning of the data:
//
//	offset  size  what
//	     0     4  position: its place as head counts, divided by 8; written last
//	     4     2  size of the record in bytes, these 20 included
//	     6     2  index of the event, as its registration gave it
//	     8     8  time
//	    16     4  thread, as the program's pid namespace numbers it; 0 is not known
//	    20        the event's data
//
// A writer takes room by a compare-and-swap of head, if head and the size of its record,
// rounded up to 8, are no further than the size of the data beyond tail; else it adds one
// to lost. It writes all but the first 8 bytes, and then those with release order. So the
// reader knows what is written; what an earlier round left has another position.
package ring

// Sizes, in bytes.
const (
	// Header is what lies in front of the data.
	Header = 4096
	// MinData and MaxData bound the data.
	MinData, MaxData = 1 << 12, 1 << 30
	// RecordHeader is what a record has in front of its event's data, and MaxRecord the
	// most that it may have with them.
	RecordHeader, MaxRecord = 20, 1<<16 - 1

	align = 8
)

// Command is the ioctl by which a program gives the events of its user_events_data the ring
// with a number: _IOW('G', 1, uint64_t). The kernel's own file does not know it (ENOTTY).
const Command = 0x40084701

// Magic and version of a ring's page.
const (
	magic   = "gantryrg"
	version = 1

	versionAt = 8
	sizeAt    = 16
	clockAt   = 24
	headAt    = 64
	lostAt    = 128
	tailAt    = 192
)

// aligned is the room that a record of n bytes takes.
func aligned(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// ValidSize reports whether data may have a size.
func ValidSize(n uint64) bool { return n >= MinData && n <= MaxData && n&(n-1) == 0 }
