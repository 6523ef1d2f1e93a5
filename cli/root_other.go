// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import "github.com/spf13/cobra"

// liveCommands need the Linux kernel.
func liveCommands(*env) []*cobra.Command { return nil }
