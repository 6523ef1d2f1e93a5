// SPDX-License-Identifier: Apache-2.0

// Command gantry is a container-aware profiler and tracer for Linux.
package main

import (
	"os"

	"github.com/gantry-tools/gantry/cli"
)

func main() { os.Exit(cli.Main(os.Stdin, os.Stdout, os.Stderr, cli.Args(os.Args))) }
