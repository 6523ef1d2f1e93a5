// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent_test

import (
	"fmt"

	"github.com/gantry-tools/gantry/capture/perfevent"
)

// An error in a spec says where it is and what may have been meant.
func ExampleParse() {
	pmus := perfevent.NewPMUs(nil)
	defer pmus.Close()
	groups, err := perfevent.Parse("{cpu-clock:u,page-faults},context-switches", pmus)
	if err != nil {
		fmt.Println(err)
	}
	for _, g := range groups {
		for _, s := range g.Events {
			fmt.Println(s.Name, s.Attr.Type, s.Attr.Config)
		}
	}
	_, err = perfevent.Parse("cpu-clock,page-falts", pmus)
	fmt.Println(err)
	// Output:
	// cpu-clock:u 1 0
	// page-faults 1 2
	// context-switches 1 3
	// event "cpu-clock,page-falts", column 11: unknown event "page-falts"; did you mean page-faults?
}
