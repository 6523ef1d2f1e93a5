// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"strconv"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// lastFeature is the highest bit of the file header.
const lastFeature perfdata.FeatureID = 255

func featureID(word string) (perfdata.FeatureID, bool) {
	for id := perfdata.FeatureID(1); id <= lastFeature; id++ {
		if id.String() == word {
			return id, true
		}
	}
	return 0, false
}

// features prints the features. Lists have a line for each entry.
func (p *printer) features(list *perfdata.Features) {
	for _, id := range list.IDs() {
		if raw, ok := list.Raw[id]; ok {
			f := p.startFeature(id)
			f.all = true
			f.bytes("bytes", &raw)
			p.end()
			continue
		}
		switch id {
		case perfdata.FeatureEventDesc, perfdata.FeatureCompressed:
		case perfdata.FeatureTracingData:
			p.tracing(list.TracingData)
		default:
			for i := range featureLines(list, id) {
				p.startFeature(id).feature(list, id, i)
				p.end()
			}
		}
	}
}

func (p *printer) startFeature(id perfdata.FeatureID) *fields {
	f := p.start("feature ")
	f.b = append(f.b, id.String()...)
	return f
}

// featureLines is how many lines the feature takes.
func featureLines(l *perfdata.Features, id perfdata.FeatureID) int {
	switch id {
	case perfdata.FeatureBuildID:
		return len(l.BuildIDs)
	case perfdata.FeatureNUMATopology:
		return len(l.NUMATopology)
	case perfdata.FeaturePMUMappings:
		return len(l.PMUMappings)
	case perfdata.FeatureGroupDesc:
		return len(l.GroupDesc)
	case perfdata.FeatureCPUTopology:
		return topologyLists + len(l.CPUTopology.CPUs)
	}
	return 1
}

// feature reads the name of a feature and its line.
func (p *parser) feature(f *fields) error {
	word := f.bare()
	if word == nil {
		return syntaxError(f.end, "the name of the feature is missing")
	}
	id, ok := featureID(word.val)
	if !ok || id == perfdata.FeatureEventDesc || id == perfdata.FeatureCompressed {
		return syntaxError(word.col, "no feature is called %q, or it is made by the writer", word.val)
	}
	l := &p.rec.Features
	if f.has("bytes") {
		if l.Raw == nil {
			l.Raw = make(map[perfdata.FeatureID][]byte)
		}
		raw := []byte{}
		f.bytes("bytes", &raw)
		l.Raw[id] = raw
		return f.done()
	}
	if id == perfdata.FeatureTracingData {
		p.tracing.line(f)
		return f.done()
	}
	f.feature(l, id, appendEntry(l, id))
	return f.done()
}

// bare gives the next word that has neither key nor quotes.
func (f *fields) bare() *token {
	for i := range f.toks {
		if t := &f.toks[i]; t.key == "" && !t.used && !t.quoted {
			t.used = true
			return t
		}
	}
	return nil
}

// appendEntry makes room for another entry of a list, and says where.
func appendEntry(l *perfdata.Features, id perfdata.FeatureID) int {
	switch id {
	case perfdata.FeatureBuildID:
		l.BuildIDs = append(l.BuildIDs, perfdata.BuildIDEntry{})
		return len(l.BuildIDs) - 1
	case perfdata.FeatureNUMATopology:
		l.NUMATopology = append(l.NUMATopology, perfdata.NUMANode{})
		return len(l.NUMATopology) - 1
	case perfdata.FeaturePMUMappings:
		l.PMUMappings = append(l.PMUMappings, perfdata.PMU{})
		return len(l.PMUMappings) - 1
	case perfdata.FeatureGroupDesc:
		l.GroupDesc = append(l.GroupDesc, perfdata.GroupDesc{})
		return len(l.GroupDesc) - 1
	}
	return 0
}

// feature walks line i of a feature.
func (f *fields) feature(l *perfdata.Features, id perfdata.FeatureID, i int) {
	f.all = true
	if s := stringFeature(l, id); s != nil {
		f.str(s)
		return
	}
	switch id {
	case perfdata.FeatureNrCPUs:
		num(f, "online", &l.NrCPUsOnline)
		num(f, "available", &l.NrCPUsAvail)
	case perfdata.FeatureTotalMem:
		num(f, "kB", &l.TotalMem)
	case perfdata.FeatureCmdLine:
		f.strs(&l.CmdLine)
	case perfdata.FeatureSampleTime:
		num(f, "first", &l.SampleTime[0])
		num(f, "last", &l.SampleTime[1])
	case perfdata.FeatureClockID:
		num(f, "resolution", &l.ClockRes)
	case perfdata.FeatureClockData:
		if l.ClockData == nil {
			l.ClockData = new(perfdata.ClockData)
		}
		num(f, "clockid", &l.ClockData.ClockID)
		num(f, "wall", &l.ClockData.WallNS)
		num(f, "clock", &l.ClockData.ClockNS)
	case perfdata.FeatureBPFProgInfo:
		f.bytes("data", &l.BPFProgInfo)
	case perfdata.FeatureBPFBTF:
		f.bytes("data", &l.BPFBTF)
	case perfdata.FeatureGantry:
		s := string(l.Gantry)
		f.str(&s)
		if f.parse {
			l.Gantry = []byte(s)
		}
	default:
		f.featureEntry(l, id, i)
	}
}

// featureEntry walks one entry of a feature that is a list.
func (f *fields) featureEntry(l *perfdata.Features, id perfdata.FeatureID, i int) {
	switch id {
	case perfdata.FeatureBuildID:
		e := &l.BuildIDs[i]
		f.misc(perf.RecordHeaderBuildID, &e.Misc)
		num(f, "pid", &e.PID)
		f.buildID(&e.ID)
		f.str(&e.Path)
	case perfdata.FeatureNUMATopology:
		n := &l.NUMATopology[i]
		num(f, "node", &n.Node)
		num(f, "total", &n.MemTotal)
		num(f, "free", &n.MemFree)
		f.str(&n.CPUs)
	case perfdata.FeaturePMUMappings:
		num(f, "type", &l.PMUMappings[i].Type)
		f.str(&l.PMUMappings[i].Name)
	case perfdata.FeatureGroupDesc:
		num(f, "leader", &l.GroupDesc[i].Leader)
		num(f, "members", &l.GroupDesc[i].Members)
		f.str(&l.GroupDesc[i].Name)
	case perfdata.FeatureCPUTopology:
		f.topology(l, i)
	default:
		f.fail(syntaxError(f.end, "%v takes bytes=", id))
	}
}

// topologyLists are the lines before those of the cpus.
const topologyLists = 3

// topology walks a line of CPU_TOPOLOGY: a list of siblings, or a cpu.
func (f *fields) topology(l *perfdata.Features, i int) {
	if l.CPUTopology == nil {
		l.CPUTopology = new(perfdata.CPUTopology)
	}
	t := l.CPUTopology
	lists := []struct {
		word string
		list *[]string
	}{{"cores", &t.Cores}, {"threads", &t.Threads}, {"dies", &t.Dies}}
	for j, e := range lists {
		if !f.parse && i == j {
			f.b = append(append(f.b, ' '), e.word...)
			f.strs(e.list)
			return
		}
		if f.parse && f.word(e.word) {
			f.strs(e.list)
			return
		}
	}
	if f.parse {
		t.CPUs = append(t.CPUs, perfdata.CPULocation{})
		i = len(t.CPUs) - 1 + topologyLists
	}
	c := &t.CPUs[i-topologyLists]
	num(f, "core", &c.Core)
	num(f, "socket", &c.Socket)
	num(f, "die", &c.Die)
}

// word takes a word without key or quotes, if it is there.
func (f *fields) word(want string) bool {
	for i := range f.toks {
		if t := &f.toks[i]; t.key == "" && !t.quoted && !t.used && t.val == want {
			t.used = true
			return true
		}
	}
	return false
}

func stringFeature(l *perfdata.Features, id perfdata.FeatureID) *string {
	switch id {
	case perfdata.FeatureHostname:
		return &l.Hostname
	case perfdata.FeatureOSRelease:
		return &l.OSRelease
	case perfdata.FeatureVersion:
		return &l.Version
	case perfdata.FeatureArch:
		return &l.Arch
	case perfdata.FeatureCPUDesc:
		return &l.CPUDesc
	case perfdata.FeatureCPUID:
		return &l.CPUID
	}
	return nil
}

// tracing collects the lines of TRACING_DATA.
type tracing struct {
	data  perfdata.TracingData
	found bool
}

// tracing prints TRACING_DATA: what it says about the machine, then its files.
func (p *printer) tracing(section []byte) {
	t, err := perfdata.ParseTracingData(section)
	if err != nil {
		f := p.startFeature(perfdata.FeatureTracingData)
		f.all = true
		f.bytes("bytes", &section)
		p.end()
		return
	}
	f := p.startFeature(perfdata.FeatureTracingData)
	f.tracingHead(t)
	p.end()
	file := func(kind, system string, text []byte) {
		f := p.startFeature(perfdata.FeatureTracingData)
		f.key("file")
		f.b = append(f.b, kind...)
		f.b = strconv.AppendQuote(append(f.b, ' '), string(text))
		if kind == "format" {
			f.b = strconv.AppendQuote(append(f.b, ' '), system)
		}
		p.end()
	}
	for _, e := range tracingFiles(t) {
		if len(*e.text) > 0 {
			file(e.kind, "", *e.text)
		}
	}
	for _, text := range t.Ftrace {
		file("ftrace", "", text)
	}
	for _, s := range t.Systems {
		for _, text := range s.Formats {
			file("format", s.Name, text)
		}
	}
}

func (f *fields) tracingHead(t *perfdata.TracingData) {
	version := t.Version
	if order := uint8(t.Order); f.parse || order != 0 {
		num(f, "big_endian", &order)
		t.Order = perf.Order(min(order, 1))
	}
	num(f, "long", &t.LongSize)
	num(f, "page", &t.PageSize)
	f.str(&version)
	t.Version = version
}

type tracingFile struct {
	kind string
	text *[]byte
}

// tracingFiles are the files that there is one of.
func tracingFiles(t *perfdata.TracingData) []tracingFile {
	return []tracingFile{
		{"header_page", &t.HeaderPage}, {"header_event", &t.HeaderEvent}, {"kallsyms", &t.Kallsyms},
		{"printk", &t.Printk}, {"cmdlines", &t.Cmdlines},
	}
}

// line takes one line of TRACING_DATA.
func (t *tracing) line(f *fields) {
	t.found = true
	kind := f.take("file")
	if kind == nil {
		f.tracingHead(&t.data)
		return
	}
	var text string
	f.str(&text)
	switch kind.val {
	case "ftrace":
		t.data.Ftrace = append(t.data.Ftrace, []byte(text))
		return
	case "format":
		t.format(f, text)
		return
	}
	for _, e := range tracingFiles(&t.data) {
		if e.kind == kind.val {
			*e.text = []byte(text)
			return
		}
	}
	f.fail(syntaxError(kind.col, "no file of tracing data is called %q", kind.val))
}

// format adds the format file of a tracepoint to its system.
func (t *tracing) format(f *fields, text string) {
	var system string
	f.str(&system)
	l := &t.data.Systems
	if n := len(*l); n == 0 || (*l)[n-1].Name != system {
		*l = append(*l, perfdata.TracingSystem{Name: system})
	}
	s := &(*l)[len(*l)-1]
	s.Formats = append(s.Formats, []byte(text))
}

// finish puts the lines together.
func (t *tracing) finish(l *perfdata.Features) {
	if t.found {
		l.TracingData = t.data.Append(nil)
	}
}
