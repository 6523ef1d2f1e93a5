// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

//go:generate ../../../../tools/bpf2go filter.bpf.c
