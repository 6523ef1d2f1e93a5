// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis/disasm"
	"github.com/gantry-tools/gantry/perf"
)

// jsonVersion grows when a field changes its meaning or goes away. New fields
// may come at any time.
const jsonVersion = 1

type jsonFunction struct {
	Name         string     `json:"name"`
	DSO          string     `json:"dso"`
	Path         string     `json:"path"`
	BuildID      string     `json:"build_id,omitempty"`
	Kernel       bool       `json:"kernel,omitempty"`
	Programs     []jsonLoad `json:"bpf,omitempty"`
	Start        uint64     `json:"start"`
	Size         uint64     `json:"size"`
	Event        string     `json:"event"`
	Skid         bool       `json:"skid,omitempty"`
	Samples      uint64     `json:"samples"`
	Value        uint64     `json:"value"`
	Percent      float64    `json:"percent"`
	Missing      string     `json:"missing,omitempty"`
	Note         string     `json:"note,omitempty"`
	Instructions []jsonLine `json:"instructions"`
}

type jsonLoad struct {
	Program string `json:"program"`
	Loader  string `json:"container"`
}

type jsonLine struct {
	Addr    uint64      `json:"addr"`
	Offset  uint64      `json:"offset"`
	Size    int         `json:"size,omitempty"`
	Text    string      `json:"text,omitempty"`
	Unknown bool        `json:"unknown,omitempty"`
	Flow    string      `json:"flow,omitempty"`
	Label   bool        `json:"label,omitempty"`
	Target  *jsonTarget `json:"target,omitempty"`
	Samples uint64      `json:"samples"`
	Value   uint64      `json:"value"`
	Percent float64     `json:"percent"`
	Calls   []jsonCall  `json:"calls,omitempty"`
	Source  string      `json:"source,omitempty"`
}

type jsonTarget struct {
	Addr   uint64 `json:"addr"`
	Name   string `json:"name,omitempty"`
	Offset uint64 `json:"offset"`
	Own    bool   `json:"own,omitempty"`
}

type jsonCall struct {
	Function string `json:"function,omitempty"`
	File     string `json:"file,omitempty"`
	Line     uint32 `json:"line,omitempty"`
}

// JSON writes functions as one JSON object; docs/annotate.md has the schema.
func JSON(w io.Writer, list []*Function, arch perf.Arch, o *Options) error {
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprintf(out, `{"version":%d,"functions":[`, jsonVersion)
	for i, f := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		b, err := json.Marshal(List(f, arch, o).json(o))
		if err != nil {
			return fmt.Errorf("write json: %w", err)
		}
		out.WriteByte('\n')
		out.Write(b)
	}
	out.WriteString("\n]}\n")
	return out.Flush()
}

func (l *Listing) json(o *Options) *jsonFunction {
	f := &jsonFunction{
		Name: l.Name, DSO: l.DSO, Path: l.Path, BuildID: l.BuildID.String(), Kernel: l.Kernel,
		Start: l.Start, Size: l.End - l.Start, Event: l.Event, Skid: o.Skid[l.Event],
		Samples: l.Samples, Value: l.Value, Percent: l.Percent(), Note: l.Note, Instructions: []jsonLine{},
	}
	for _, load := range l.Loads {
		f.Programs = append(f.Programs, jsonLoad(load))
	}
	if l.Err != nil {
		f.Missing = l.Err.Error()
	}
	for i := range l.Lines {
		f.Instructions = append(f.Instructions, l.Lines[i].json(l))
	}
	return f
}

func (line *Line) json(l *Listing) jsonLine {
	j := jsonLine{
		Addr: line.Addr, Offset: line.Addr - l.Start, Size: line.Size, Text: line.Text, Unknown: line.Unknown,
		Label:   line.Label,
		Samples: line.Samples, Value: line.Value, Percent: share(line.Weight, l.Weight), Source: line.Source,
	}
	switch line.Flow {
	case disasm.Jump:
		j.Flow = "jump"
	case disasm.Call:
		j.Flow = "call"
	case disasm.Next:
	}
	if line.Target != 0 {
		j.Target = &jsonTarget{Addr: line.Target, Name: line.Name, Offset: line.Offset, Own: line.Own}
	}
	for _, c := range line.Calls {
		j.Calls = append(j.Calls, jsonCall{Function: c.Name, File: c.File, Line: c.Line})
	}
	return j
}
