// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package tasks tells, by BPF iterators (Linux 5.8), of the tasks that run.
//
// Start with Load. What surprises: a task that ends while the iterator goes on
// may be told of or not, and each is told of as it was at its own time.
package tasks
