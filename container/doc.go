// SPDX-License-Identifier: Apache-2.0

// Package container says which container a task is in and what that
// container is called.
//
//   - A Definition is a rule that says what a container is; an Identity is
//     what the tasks of one container share under it. Any number of
//     Definitions hold side by side: a task has an Identity under each that
//     it matches.
//   - A Ref is what the text of a cgroup path tells: runtime and id.
//   - A Container is one container with all that is known of it, a Table all
//     that are known. A Table travels in a perf.data file, so that a report
//     on another machine shows names.
//   - On Linux a Resolver fills a Table from the cgroup tree and the Sources:
//     the runtimes' state directories and sockets.
//
// What may surprise: names arrive late or never, and nothing depends on them.
// Containers are keyed by cgroup id and start time, because ids are used
// again; a lookup falls back from name to short id to cgroup path. Every
// string in a Table is hostile: print it through Printable.
package container
