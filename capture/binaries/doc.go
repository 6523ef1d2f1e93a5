// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package binaries copies the binaries that processes of containers have mapped
// into the build-id store, while the containers live: afterwards there may be
// nothing left of them. It keeps their separate debug files and the perf maps
// and jitdump files of compilers as well, and finds the build-ids of mapped
// files.
package binaries
