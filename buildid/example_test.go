// SPDX-License-Identifier: Apache-2.0

package buildid_test

import (
	"fmt"

	"github.com/gantry-tools/gantry/buildid"
)

// An id may have been cut to the 20 bytes that a record has room for.
func ExampleID_Matches() {
	id, err := buildid.Parse("B5E9F2D8B1EAE55C2F1BA82F88FC617D3D475AD9")
	if err != nil {
		fmt.Println(err)
		return
	}
	same, _ := buildid.New(id.Bytes())
	fmt.Println(id, id.Len(), id.Matches(same))
	_, err = buildid.Parse("b5e9f")
	fmt.Println(err != nil)
	// Output:
	// b5e9f2d8b1eae55c2f1ba82f88fc617d3d475ad9 20 true
	// true
}
