// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package nsfs shows tracing namespaces as a file system: mkdir makes one, its options
// file is written and read, and its directory root/ is what containers mount.
//
// Start with Mount, which needs /dev/fuse and CAP_SYS_ADMIN, and Unmount it in the end.
// What is asked comes from containers and is not trusted: a process is the one that the
// kernel names, and cannot end while it waits for an answer.
package nsfs
