// SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/perf/perftext"
)

const recording = `perfdata little pipe
event "cpu-clock" type=software config=cpu-clock period=1000000 sample=ip|tid|time flags=sample_id_all|comm
COMM pid=12 tid=12 "nginx" @pid=12 @tid=12 @time=1
SAMPLE misc=user ip=0x401000 pid=12 tid=12 time=5000
SAMPLE misc=user ip=0x401010 pid=12 tid=12 time=6000
`

// A recording becomes a profile: by thread name here, without functions.
func ExampleSession_Collect() {
	text, err := perftext.Parse(strings.NewReader(recording))
	if err != nil {
		fmt.Println(err)
		return
	}
	var data bytes.Buffer
	if err := text.WriteStream(&data); err != nil {
		fmt.Println(err)
		return
	}
	r, err := perfdata.NewPipeReader(&data, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	p, err := analysis.NewSession(r, nil).Collect(analysis.CollectOptions{Fields: profile.FieldComm | profile.FieldPID})
	if err != nil {
		fmt.Println(err)
		return
	}
	for s := range p.Samples() {
		l := p.Labels(s.Labels)
		fmt.Println(l.Comm, l.PID, s.Count, s.Value)
	}
	// Output: nginx 12 2 2000000
}
