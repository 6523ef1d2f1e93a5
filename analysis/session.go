// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"encoding/json"
	"fmt"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Kernel says which kernel a recording is of.
type Kernel struct {
	BuildID buildid.ID // zero if the recording does not tell
	Release string     // as uname -r, "" if not told
	Arch    string
	// Reference is a symbol whose address is known.
	Reference symbol.Reference
	// Addrs are the addresses that will be looked up, in no order, if that is
	// known: symbols need to be right only there. nil is all.
	Addrs []uint64
}

// Options say where names come from. The zero value, and nil, is a session
// that names no address.
type Options struct {
	// Binaries opens what processes had mapped.
	Binaries []symbol.Opener
	// Cache keeps what is made of binaries with some effort; nil is none.
	Cache symbol.Cache
	// Kallsyms finds the symbols of a kernel.
	Kallsyms func(Kernel) (*symbol.Kallsyms, error)
	// VDSO is the build-id of what a kernel maps into 64-bit processes as
	// "[vdso]", zero if that is not known. It is asked if the recording does
	// not tell: perf record --buildid-mmap writes none.
	VDSO func(Kernel) buildid.ID
	// Live says that the recording is one of this program's, which is read while it is
	// written: its table of containers changes as often as it likes.
	Live bool
	// Definitions say what a container is, beside those of the recording. Of
	// two with the same name these count; built-in ones stay as they are.
	Definitions container.Definitions
}

// Item is one record of a recording, at its place in time. It is valid until
// the next call of Next.
type Item struct {
	*perfdata.Record
	// Sample is set for samples, Other for all other records.
	Sample *perf.Sample
	Other  perf.Record
	// Thread is whose sample it is, nil if the samples do not tell.
	Thread *timeline.Thread
}

// Session is one pass over a recording. It is not safe for use by several
// goroutines.
type Session struct {
	// Timeline is the state at the record that Next gave last.
	Timeline *timeline.Timeline
	// Containers are the containers that the recording tells of. CGROUP
	// records add to them.
	Containers *container.Table

	r            *perfdata.Reader
	ordered      *perfdata.OrderedReader
	opts         Options
	resolver     *symbol.Resolver
	binaries     []*binary // by timeline.File.Index
	kernel       kernel
	ids          pathIDs
	fileList     fileList
	files        mappedFiles // kept by their content
	stacks       stacks
	counters     counters
	bpf          bpf
	sourceCounts []frameSource // by profile.FrameID
	warnings     []string
	item         Item
	sample       perf.Sample
	now          uint64 // the time of item, 0 if it has none
	leafOnly     bool   // decode only what DecodeLeaf does
	cgroups      bool   // and cgroups
	before       func() // called before the timeline changes
	renamed      func() // called when NamesID changes
	namesID      uint64

	defs        container.Definitions       // nil: to be put together
	names       map[string]*container.Names // by definition
	hostNS      bool                        // nothing better will be known
	hostGuessed bool                        // Containers.Host is no recorder's

	gantryChanges int
	noContainers  error // why Containers could not be read
	tablesRead    int
	bad           badRecords
}

// badRecords counts what could not be decoded.
type badRecords struct {
	n     uint64
	first error
}

func (b *badRecords) add(offset int64, err error) {
	if b.n == 0 {
		b.first = fmt.Errorf("at offset %d: %w", offset, err)
	}
	b.n++
}

// NewSession starts a pass over r, from which nothing may have been read. r
// stays the caller's to close.
func NewSession(r *perfdata.Reader, o *Options) *Session {
	if o == nil {
		o = new(Options)
	}
	s := &Session{
		Timeline:   timeline.New(),
		Containers: new(container.Table),
		r:          r,
		ordered:    r.Ordered(),
		opts:       *o,
		resolver:   symbol.NewResolver(o.Binaries...),
	}
	s.resolver.UseCache(o.Cache)
	s.readContainers()
	s.ids.add(r.Features().BuildIDs)
	return s
}

// maxTables bounds how often a recording may change its table of containers;
// gantry writes three at most.
const maxTables = 16

// readContainers reads the recording's table of containers. In a stream, and
// in a file whose recorder was killed, it comes among the data, in pieces:
// what cannot be read yet is not shown yet.
func (s *Session) readContainers() {
	s.gantryChanges = s.r.GantryChanges()
	section := s.r.Features().Gantry
	if len(section) == 0 || s.tablesRead == maxTables && !s.opts.Live {
		return
	}
	s.tablesRead = min(s.tablesRead+1, maxTables)
	table := new(container.Table)
	if s.noContainers = json.Unmarshal(section, table); s.noContainers != nil {
		return
	}
	var beside struct {
		Files buildid.MappedFiles `json:"files"`
	}
	if err := json.Unmarshal(section, &beside); err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("files without a build-id may have no names: %v", err))
	}
	s.files = indexFiles(beside.Files)
	for i := range beside.Files {
		s.Timeline.ApartByNamespace(beside.Files[i].BuildID.Bytes())
	}
	for _, c := range s.Containers.Cgroups() {
		table.AddCgroup(c.ID, c.Path)
	}
	s.Containers = table
	s.Timeline.SetHost(table.Host[container.MntNS])
	s.defs, s.names, s.hostNS, s.hostGuessed = nil, nil, false, false
	s.rename()
}

// NamesID changes when a task may have got another container, or a container
// another name, although the task has changed nothing.
func (s *Session) NamesID() uint64 { return s.namesID }

func (s *Session) rename() {
	s.namesID++
	if s.renamed != nil {
		s.renamed()
	}
}

// Warnings are what was odd about the recording so far, one line each.
func (s *Session) Warnings() []string {
	out := s.warnings
	for _, w := range s.r.Warnings() {
		out = append(out, w.String())
	}
	if s.noContainers != nil {
		out = append(out, fmt.Sprintf("the recording's containers are not shown: %v", s.noContainers))
	}
	if n := s.Timeline.Uncopied; n > 0 {
		out = append(out, fmt.Sprintf("%d processes lost their parents' mappings: the recording has too many", n))
	}
	out = append(out, s.stackWarnings()...)
	out = append(out, s.lineWarnings()...)
	out = append(out, s.codeWarnings()...)
	out = append(out, s.bpfWarnings()...)
	if s.bad.n > 0 {
		out = append(out, fmt.Sprintf("%d records could not be decoded, the first %v", s.bad.n, s.bad.first))
	}
	return out
}

// Unresolved lists the binaries whose symbols could not be read, and why.
func (s *Session) Unresolved() []symbol.Failure { return s.resolver.Failures() }

// Next gives the next record in the order of time, after applying it to the
// timeline; io.EOF at the end. Records that cannot be decoded are skipped,
// counted, and in Warnings.
func (s *Session) Next() (*Item, error) {
	for {
		rec, err := s.ordered.Next()
		if err != nil {
			return nil, err
		}
		if rec.Type == perf.RecordSample {
			if s.r.GantryChanges() != s.gantryChanges {
				s.readContainers()
			}
			if err := s.decodeSample(rec); err != nil {
				s.bad.add(rec.Offset, err)
				continue
			}
			return &s.item, nil
		}
		other, err := perf.Decode(rec.Raw, s.r.Order(), rec.Event)
		if err != nil {
			s.bad.add(rec.Offset, err)
			continue
		}
		if s.before != nil && rec.Type.Kernel() {
			s.before()
		}
		s.apply(rec, other)
		return &s.item, nil
	}
}

// KeepLines keeps what was read of source lines and inlined calls for the next
// time, if there is where. It is called when nothing more is looked up.
func (s *Session) KeepLines() { s.resolver.SaveLines() }

func (s *Session) decodeSample(rec *perfdata.Record) error {
	if rec.Event == nil {
		return fmt.Errorf("sample of no known event: %w", perf.ErrUnsupported)
	}
	if err := s.decode(rec.Raw, rec.Event); err != nil {
		return err
	}
	s.item, s.now = Item{Record: rec, Sample: &s.sample, Thread: s.threadOf(rec.Event)}, rec.Time
	return nil
}

// decode fills s.sample.
func (s *Session) decode(raw []byte, ev *perf.Event) (err error) {
	if s.leafOnly && ev.Layout.SampleType&perf.SampleRead == 0 {
		err = s.sample.DecodeLeaf(raw, s.r.Order(), &ev.Layout, s.cgroups)
	} else {
		err = s.sample.Decode(raw, s.r.Order(), &ev.Layout)
	}
	if ev.Layout.SampleType&perf.SamplePeriod == 0 {
		s.sample.Period = defaultPeriod(&ev.Attr)
	}
	return err
}

// threadOf is whose sample s.sample is.
func (s *Session) threadOf(ev *perf.Event) *timeline.Thread {
	if ev.Layout.SampleType&perf.SampleTID == 0 {
		return nil
	}
	return s.Timeline.Thread(s.sample.PID, s.sample.TID)
}

// samples gives those that come next, as [perfdata.OrderedReader.Samples].
func (s *Session) samples() []perfdata.RawSample {
	if s.r.GantryChanges() != s.gantryChanges {
		s.readContainers()
	}
	return s.ordered.Samples()
}

// defaultPeriod is what a sample that carries no period stands for.
func defaultPeriod(a *perf.Attr) uint64 {
	if a.Flags.Has(perf.AttrFreq) || a.SampleCount == 0 {
		return 1
	}
	return a.SampleCount
}

func (s *Session) apply(rec *perfdata.Record, other perf.Record) {
	s.item, s.now = Item{Record: rec, Other: other}, rec.Time
	s.Timeline.Apply(other, rec.Time)
	switch r := other.(type) {
	case *perf.Cgroup:
		s.Containers.AddCgroup(container.CgroupID(r.ID), r.Path)
		s.rename()
	case *perf.Mmap:
		s.kernel.mapped(r.PID, r.Filename, r.PgOff, nil)
	case *perf.Mmap2:
		s.kernel.mapped(r.PID, r.Filename, r.PgOff, r.BuildID)
	case *perf.BuildID:
		s.ids.addOne(perfdata.BuildIDEntry{PID: r.PID, Misc: r.Misc, ID: r.ID, Path: r.Filename})
	}
}
