// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// liveCommands need the Linux kernel.
func liveCommands(e *env) []*cobra.Command {
	return []*cobra.Command{
		newAgentCmd(e),
		newBPFCmd(e),
		newContainersCmd(e),
		newDoctorCmd(e),
		newExecCmd(e),
		newNSCmd(e),
		newRecordCmd(e), newTopCmd(e),
		newSnapshotCmd(e),
	}
}
