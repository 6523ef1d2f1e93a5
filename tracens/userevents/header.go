// SPDX-License-Identifier: Apache-2.0

//go:build linux

package userevents

import _ "embed"

// Header is userevents.h, by which C programs write user events.
//
//go:embed userevents.h
var Header []byte
