// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// liveCommands need the Linux kernel.
func liveCommands(e *env) []*cobra.Command {
	return []*cobra.Command{
		newBPFCmd(e),
		newContainersCmd(e),
		newDoctorCmd(e),
		newRecordCmd(e),
		newSnapshotCmd(e),
	}
}
