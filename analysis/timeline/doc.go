// SPDX-License-Identifier: Apache-2.0

// Package timeline replays the sideband of a recording: which thread was
// there, what it was called, which files it had mapped where, in which
// namespaces it was, and which symbols the kernel had added, at the time of
// the record that was applied last.
//
// Apply takes the records in the order of their times; between two records
// every question is about that moment. Status records (perf.MiscStatusOnly)
// describe what a snapshot found: their mappings fill gaps only, and their forks
// make no task anew; names and namespaces are those of the latest record.
//
// What surprises: a task that has exited can still be asked about for
// [Grace], because its last samples are taken while it exits; a thread that
// no record announced is made when it is asked for, without mappings; and a
// forked process shares the mappings of its parent until one of them changes
// them, so [Maps] are never to be changed from outside.
package timeline
