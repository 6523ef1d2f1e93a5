// SPDX-License-Identifier: Apache-2.0

package profile_test

import (
	"fmt"
	"os"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// A profile is built of labels, stacks (leaf first) and weights, and written in
// the formats of other tools.
func ExampleBuilder() {
	b := profile.NewBuilder()
	clock := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
	main, parse := b.Frame(profile.Frame{Name: "main"}), b.Frame(profile.Frame{Name: "parse"})
	web := b.Labels(profile.Labels{Container: "web", Comm: "nginx"})
	b.Add(web, b.Stack([]profile.FrameID{parse, main}), clock, 3, 3_000_000)
	b.Add(web, b.Stack([]profile.FrameID{main}), clock, 1, 1_000_000)
	if err := profile.WriteFolded(os.Stdout, b.Profile(), nil); err != nil {
		fmt.Println(err)
	}
	// Output:
	// web;nginx;main 1
	// web;nginx;main;parse 3
}
