// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"os"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/view/report"
)

// A profile as the table of gantry report --sort container,sym.
func ExampleText() {
	b := profile.NewBuilder()
	clock := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
	parse, render := b.Frame(profile.Frame{Name: "parse"}), b.Frame(profile.Frame{Name: "render"})
	web, db := b.Labels(profile.Labels{Container: "web"}), b.Labels(profile.Labels{Container: "db"})
	b.Add(web, b.Stack([]profile.FrameID{render}), clock, 3, 3_000_000)
	b.Add(db, b.Stack([]profile.FrameID{parse}), clock, 1, 1_000_000)
	keys, err := report.ParseKeys("container,sym", nil, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := report.Text(os.Stdout, b.Profile(), &report.Options{Sort: keys}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// # Samples: 4 of event 'cpu-clock'
	// # Event count (approx.): 4000000
	// # Lost: 0 (0.00%)
	// # Unresolved: 0 (0.00%)
	// #
	// # Overhead  Container  Symbol
	// # ........  .........  ..........
	// #
	//     75.00%  web        [.] render
	//     25.00%  db         [.] parse
}
