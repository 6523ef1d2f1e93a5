// SPDX-License-Identifier: Apache-2.0

//go:build linux

package testprogs

//go:generate ../../../../tools/bpf2go testprogs.bpf.c
