// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

//go:generate ../../../../tools/bpf2go loads.bpf.c -cflags -mcpu=v3
