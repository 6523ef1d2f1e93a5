// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// jsonVersion grows when a field changes its meaning or goes away. New fields
// may come at any time.
const jsonVersion = 1

// jsonMeta says what was recorded.
type jsonMeta struct {
	Version    int        `json:"version"`
	Hostname   string     `json:"hostname,omitempty"`
	CmdLine    []string   `json:"cmdline,omitempty"`
	Start      *time.Time `json:"start,omitempty"`
	DurationNS int64      `json:"duration_ns,omitempty"`
}

// jsonHead is all of a report before its events.
type jsonHead struct {
	jsonMeta
	Sort      []string   `json:"sort"`
	Children  bool       `json:"children"`
	CallGraph string     `json:"callgraph"`
	Filter    string     `json:"filter,omitempty"`
	Lost      []jsonLost `json:"lost"`
}

type jsonLost struct {
	Event     string `json:"event,omitempty"`
	Container string `json:"container,omitempty"`
	CPU       *int32 `json:"cpu,omitempty"`
	Samples   uint64 `json:"samples"`
}

type jsonEvent struct {
	Name       string `json:"name"`
	Unit       string `json:"unit"`
	Period     uint64 `json:"period,omitempty"`
	Freq       uint64 `json:"freq,omitempty"`
	Samples    uint64 `json:"samples"`
	Value      uint64 `json:"value"`
	Lost       uint64 `json:"lost"`
	Selected   uint64 `json:"selected"`
	Unresolved uint64 `json:"unresolved"`
	Hidden     int    `json:"hidden_rows"`
}

type jsonRow struct {
	Keys         any         `json:"keys"`
	Samples      uint64      `json:"samples"`
	Value        uint64      `json:"value"`
	Percent      float64     `json:"percent"`
	TotalSamples *uint64     `json:"children_samples,omitempty"`
	TotalValue   *uint64     `json:"children_value,omitempty"`
	TotalPercent *float64    `json:"children_percent,omitempty"`
	CallGraph    []*jsonNode `json:"callgraph,omitempty"`
}

type jsonKeys struct {
	Container *string `json:"container,omitempty"`
	Pod       *string `json:"pod,omitempty"`
	Namespace *string `json:"namespace,omitempty"`
	Image     *string `json:"image,omitempty"`
	Cgroup    *string `json:"cgroup,omitempty"`
	Comm      *string `json:"comm,omitempty"`
	PID       *int32  `json:"pid,omitempty"`
	TID       *int32  `json:"tid,omitempty"`
	CPU       *int32  `json:"cpu,omitempty"`
	Event     *string `json:"event,omitempty"`
	DSO       *string `json:"dso,omitempty"`
	Sym       *string `json:"sym,omitempty"`
	Kernel    *bool   `json:"kernel,omitempty"`
	Inlined   bool    `json:"inlined,omitempty"`
	Srcline   *string `json:"srcline,omitempty"`
	Srcfile   *string `json:"srcfile,omitempty"`
	BPF       *string `json:"bpf,omitempty"`
	BPFLoader *string `json:"bpfcontainer,omitempty"`
}

// jsonIdentities are the keys of a row with definitions among them, which come
// last.
type jsonIdentities struct {
	jsonKeys
	texts map[string]string
}

// MarshalJSON writes one object.
func (k jsonIdentities) MarshalJSON() ([]byte, error) {
	keys, err := json.Marshal(k.jsonKeys)
	if err != nil {
		return nil, err
	}
	texts, err := json.Marshal(k.texts)
	if err != nil || len(keys) == len("{}") {
		return texts, err
	}
	keys[len(keys)-1] = ','
	return append(keys, texts[1:]...), nil
}

type jsonNode struct {
	Sym     string      `json:"sym"`
	DSO     string      `json:"dso"`
	Kernel  bool        `json:"kernel,omitempty"`
	Inlined bool        `json:"inlined,omitempty"`
	Samples uint64      `json:"samples"`
	Value   uint64      `json:"value"`
	Percent float64     `json:"percent"`
	Calls   []*jsonNode `json:"calls,omitempty"`
}

// JSON writes the report as one JSON object; docs/report.md has the schema.
// Rows are written one by one, a line each, so that a long report needs no
// more memory than its table.
func JSON(w io.Writer, p *profile.Profile, o *Options) error {
	o = o.orDefault()
	t := newTable(p, o)
	out := bufio.NewWriterSize(w, 1<<16)
	j := jsonWriter{out: out, t: t}
	j.object(newJSONHead(p, o), "events", func() {
		for i := range t.sections {
			j.separate(i)
			j.event(&t.sections[i])
		}
	})
	out.WriteByte('\n')
	if j.err != nil {
		return fmt.Errorf("write json: %w", j.err)
	}
	return out.Flush()
}

type jsonWriter struct {
	out *bufio.Writer
	t   *table
	err error
}

// object writes head as an object with one more field, a list of what items
// writes.
func (j *jsonWriter) object(head any, list string, items func()) {
	b := j.marshal(head)
	if j.err != nil {
		return
	}
	j.out.Write(b[:len(b)-1]) // without the closing brace
	fmt.Fprintf(j.out, ",%q:[\n", list)
	items()
	j.out.WriteString("\n]}")
}

func (j *jsonWriter) marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		j.err = err
	}
	return b
}

func (j *jsonWriter) separate(i int) {
	if i > 0 {
		j.out.WriteString(",\n")
	}
}

// event writes one event, or all of them as a single one without a name when
// the event is a sort key.
func (j *jsonWriter) event(s *section) {
	t := j.t
	head := t.jsonEvent(s.event)
	if t.o.has(KeyEvent) {
		head = jsonEvent{Name: "*", Unit: "mixed"}
		for i := range t.p.Events {
			if e := t.jsonEvent(i); t.shown[i] {
				head.Samples += e.Samples
				head.Selected += e.Selected
				head.Unresolved += e.Unresolved
			}
		}
		head.Lost = t.p.TotalLost("")
	}
	head.Hidden = s.hidden
	calls := s.graphs(t)
	j.object(head, "rows", func() {
		for i, r := range s.rows {
			j.separate(i)
			j.out.Write(j.marshal(j.row(r, calls)))
		}
	})
}

func newJSONHead(p *profile.Profile, o *Options) *jsonHead {
	h := &jsonHead{
		jsonMeta: newJSONMeta(p), Children: o.Children,
		CallGraph: o.CallGraph.String(), Filter: o.Filter.String(), Lost: jsonLosses(p.Lost),
	}
	for _, k := range o.Sort {
		h.Sort = append(h.Sort, string(k))
	}
	return h
}

func newJSONMeta(p *profile.Profile) jsonMeta {
	m := jsonMeta{Version: jsonVersion, Hostname: p.Meta.Hostname, CmdLine: p.Meta.CmdLine,
		DurationNS: int64(p.Meta.Duration)}
	if !p.Meta.Start.IsZero() {
		start := p.Meta.Start.UTC()
		m.Start = &start
	}
	return m
}

func jsonLosses(lost []profile.LostCount) []jsonLost {
	out := []jsonLost{}
	for _, l := range lost {
		c := jsonLost{Event: l.Event, Container: l.Container, Samples: l.Samples}
		if l.CPU >= 0 {
			c.CPU = &l.CPU
		}
		out = append(out, c)
	}
	return out
}

func (t *table) jsonEvent(i int) jsonEvent {
	e, total := &t.p.Events[i], &t.events[i]
	unit := e.Unit
	if unit == "" {
		unit = "count"
	}
	return jsonEvent{
		Name: e.Name, Unit: unit, Period: e.Period, Freq: e.Freq, Samples: e.Samples, Value: e.Value,
		Lost: t.p.TotalLost(e.Name), Selected: total.samples, Unresolved: total.unresolved,
	}
}

func (j *jsonWriter) row(r *row, calls *graphs) *jsonRow {
	e := &j.t.events[r.event]
	out := &jsonRow{Keys: j.keys(r), Samples: r.selfCount, Value: r.self, Percent: e.percent(r.self)}
	if j.t.o.Children {
		percent := e.percent(r.total)
		out.TotalSamples, out.TotalValue, out.TotalPercent = &r.totalCount, &r.total, &percent
	}
	if calls != nil {
		if n := calls.of(r); n != nil {
			out.CallGraph = jsonNodes(n.kids, calls.keys(), e)
		}
	}
	return out
}

func jsonNodes(list []*node, keys *keyspace, e *eventTotal) []*jsonNode {
	var out []*jsonNode
	for _, n := range list {
		k := keys.list[n.key]
		out = append(out, &jsonNode{
			Sym: k.plain(), DSO: k.dso, Kernel: k.kernel, Inlined: k.inlined,
			Samples: n.count, Value: n.value, Percent: e.percent(n.value),
			Calls: jsonNodes(n.kids, keys, e),
		})
	}
	return out
}

func (j *jsonWriter) keys(r *row) any {
	t := j.t
	var out jsonKeys
	var texts map[string]string
	g, f := &t.groups[r.group], &t.keys.list[r.key]
	for _, k := range t.o.Sort {
		switch k {
		case KeyEvent:
			out.Event = &t.p.Events[r.event].Name
		case KeyDSO:
			out.DSO = &f.dso
		case KeySym:
			symbol := f.plain()
			out.Sym, out.Kernel, out.Inlined = &symbol, &f.kernel, f.inlined
		case KeySrcline:
			line := f.line()
			out.Srcline = &line
		case KeySrcfile:
			file := f.file()
			out.Srcfile = &file
		case KeyBPF:
			out.BPF = &f.program
		case KeyBPFLoader:
			out.BPFLoader = &f.loader
		default:
			if out.label(k, g) {
				continue
			}
			if texts == nil {
				texts = make(map[string]string)
			}
			texts[string(k)] = k.label(g)
		}
	}
	if texts != nil {
		return jsonIdentities{out, texts}
	}
	return &out
}

// label fills in the key of a label; it is false for a definition.
func (out *jsonKeys) label(k Key, g *profile.Labels) bool {
	switch k {
	case KeyContainer:
		out.Container = &g.Container
	case KeyPod:
		pod := k.label(g)
		out.Pod = &pod
	case KeyNamespace:
		out.Namespace = &g.Namespace
	case KeyImage:
		out.Image = &g.Image
	case KeyCgroup:
		out.Cgroup = &g.Cgroup
	case KeyComm:
		out.Comm = &g.Comm
	case KeyPID:
		out.PID = &g.PID
	case KeyTID:
		out.TID = &g.TID
	case KeyCPU:
		out.CPU = &g.CPU
	default:
		return false
	}
	return true
}
