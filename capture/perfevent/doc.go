// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package perfevent speaks to perf_event_open: it turns event names as perf
// spells them into attrs, opens them on a task, a CPU or a cgroup, and reads
// their rings and counts.
//
// Parse gives groups of EventSpec; Open takes an attr and a Target and gives
// an Event; NewRing maps its ring, whose Peek returns the unread records where
// the kernel wrote them. Several events can share a ring (Event.SetOutput).
//
// What surprises:
//   - An Event's Attr is the one that the kernel accepted: Dropped lists the newer
//     features that an older kernel refused.
//   - Why an event did not open is a sentinel (ErrNoPMU, ErrPermission, ...)
//     for errors.Is, and the hint is attached with package hint.
//   - Tracepoints need tracefs. If it is mounted nowhere it is mounted
//     detached: no other process can see it and nothing stays behind.
package perfevent
