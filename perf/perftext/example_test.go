// SPDX-License-Identifier: Apache-2.0

package perftext_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/gantry-tools/gantry/perf/perftext"
)

// A recording for a test is written as text; WriteStream makes perf.data of it.
func Example() {
	rec, err := perftext.Parse(strings.NewReader(`perfdata little
event "cpu-clock" type=software config=cpu-clock period=1000000 sample=ip|tid|time
COMM pid=12 tid=12 "nginx"
SAMPLE misc=user ip=0x401000 pid=12 tid=12 time=5000 # in a function
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	rec.Records = rec.Records[1:]
	if err := rec.WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	_, err = perftext.Parse(strings.NewReader("perfdata little\nCOM pid=12\n"))
	fmt.Println(err)
	// Output:
	// perfdata little
	// event "cpu-clock" type=software config=cpu-clock period=1000000 sample=ip|tid|time
	// SAMPLE misc=user ip=0x401000 pid=12 tid=12 time=5000
	// 2:1: malformed text: no record is called "COM"
}
