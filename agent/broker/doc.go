// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package broker opens perf events for the processes of a container, which may not.
//
// A seccomp filter tells of every perf_event_open in a container, and Broker answers:
// it copies the attr once, decides by a Policy, opens an event of its own that sees
// that container only, and puts the descriptor into the process that asked. The
// kernel never runs the call that the process made.
//
// Start with New, and call Serve for each listener. What will surprise you: nothing
// that a process says is believed. Who asks is the thread that the kernel names, a pid
// is looked up in its own pid namespace and pinned, and what was read of it counts only
// if it still waits afterwards. See docs/agent.md for what is promised.
package broker
