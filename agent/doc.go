// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package agent is gantry's daemon on the host: with it the processes of containers
// have perf events of their container, without privileges.
//
// Supervise runs the daemon: it keeps what must not be lost, the sockets and the
// listeners of seccomp filters, and runs the worker, a process of its own that may be
// restarted at any time, and which Work is. A call that a worker was killed over is
// answered by the next. docs/agent.md says what is promised.
package agent
