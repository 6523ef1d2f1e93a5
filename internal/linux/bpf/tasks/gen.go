// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

//go:generate ../../../../tools/bpf2go tasks.bpf.c
