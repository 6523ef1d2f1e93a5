// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package capture is the recorder: it opens events, tells what already runs,
// and moves what the kernel writes into a perf.data file, with the containers
// and a ledger of what was lost.
//
// Open opens everything and enables nothing, so that what is not permitted is
// known before a file is touched; Recorder.Run records until its context ends,
// the recorded command has exited or every recorded task has.
//
// Each CPU has two rings: one for samples and one for sideband, which a flood
// of samples therefore cannot push out. Run starts them in an order that
// leaves no gap: sideband, then the snapshot of what runs (a
// snapshot.Source), then samples.
//
// What surprises:
//   - The records of the rings are written to the file where the kernel put
//     them; nothing is decoded on the way but headers, so that recording
//     costs no more than copying. Sideband alone is looked into.
//   - A recorded command inherits the events of the thread that starts it, so
//     that its recorder's goroutine is locked to that thread.
//   - What a wake-up of the recorder costs is mostly the scheduling: see type
//     pace for how it is spared, and sys.Poller for how it is made cheap.
//   - Run has goroutines that copy binaries and generated code, ask the runtimes
//     for names and read BPF programs, and waits for them: for a copy ten seconds
//     at most.
package capture
