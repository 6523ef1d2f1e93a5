// SPDX-License-Identifier: Apache-2.0

//go:build linux

package join

//go:generate ../../../../tools/helper join.c
