// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// coverageWidth is how wide the text is if the terminal does not say.
const coverageWidth = 80

// coverageBinaries are shown of the binaries without names, unless MaxEntries
// says how many.
const coverageBinaries = 10

// WriteCoverage writes the coverage of p as text or as JSON. The frames of p
// must have reasons.
func WriteCoverage(w io.Writer, f Format, p *profile.Profile, o *Options) error {
	c := NewCoverage(p, o)
	if f == FormatJSON {
		return c.json(w, p, o.orDefault())
	}
	out := bufio.NewWriter(w)
	c.text(out, o.orDefault())
	return out.Flush()
}

func (c *Coverage) text(out *bufio.Writer, o *Options) {
	for _, e := range c.Events {
		fmt.Fprintf(out, "# Samples: %d of event '%s', %d lost (%.2f%%)\n", e.Samples, profile.Printable(e.Name),
			e.Lost, share(e.Lost, e.Lost+e.Samples))
		if !o.Filter.empty() {
			fmt.Fprintf(out, "# Filter: %s: %d samples (%.2f%%)\n", profile.Printable(o.Filter.String()), e.Selected,
				share(e.Selected, e.Samples))
		}
	}
	fmt.Fprintf(out, "#\n#%46s%22s\n", "frames", "innermost")
	c.line(out, "all", c.Frames)
	named := c.Frames
	named.Frames -= c.Nameless.Frames
	named.Samples -= c.Nameless.Samples
	c.line(out, "with a name", named)
	c.line(out, "without a name", c.Nameless)
	c.list(out, "Names come from", c.Sources)
	c.list(out, "No name, because", c.Reasons)
	c.list(out, "Files with symbols were found by", c.Places)
	c.binaries(out, o)
	c.Lost.text(out)
}

func (c *Coverage) line(out *bufio.Writer, text string, n Covered) {
	fmt.Fprintf(out, "  %-33s%12d%9.2f%%%12d%9.2f%%\n", cut(profile.Printable(text), 33, false),
		n.Frames, share(n.Frames, c.Frames.Frames), n.Samples, share(n.Samples, c.Frames.Samples))
}

func (c *Coverage) list(out *bufio.Writer, title string, list []CoveredBy) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", title)
	for _, x := range list {
		c.line(out, x.Text, x.Covered)
	}
}

func (c *Coverage) binaries(out *bufio.Writer, o *Options) {
	most := cmp.Or(o.MaxEntries, coverageBinaries)
	if len(c.Binaries) == 0 {
		return
	}
	fmt.Fprintf(out, "\nBinaries with frames without a name\n")
	const left = 2 + 12 + 10 + 2
	width := max(cmp.Or(o.Width, coverageWidth)-left, minColumn)
	for i, b := range c.Binaries {
		if i == most {
			fmt.Fprintf(out, "  %s: see --max-entries\n",
				plural(uint64(len(c.Binaries)-i), "binary more", "binaries more"))
			break
		}
		fmt.Fprintf(out, "  %12d%9.2f%%  %s\n", b.Frames, share(b.Frames, c.Frames.Frames),
			cut(profile.Printable(b.Path), width, true))
		fmt.Fprintf(out, "%*s%s\n", left, "", profile.Printable(b.Reason))
	}
}

func (l *CoveredLoss) text(out *bufio.Writer) {
	fmt.Fprintf(out, "\nLost\n  %-33s%12d\n", "samples", l.Samples)
	for _, x := range l.CPUs {
		text := fmt.Sprintf("on cpu %d", x.CPU)
		if x.CPU < 0 {
			text = "on an unknown cpu"
		}
		fmt.Fprintf(out, "    %-31s%12d\n", text, x.Samples)
	}
	for _, x := range l.Containers {
		text := "in container " + profile.Printable(x.Container)
		if x.Container == "" {
			text = "on the host, or not known where"
		}
		fmt.Fprintf(out, "    %-31s%12d\n", cut(text, 31, false), x.Samples)
	}
}

// jsonCoverage is the form of Coverage; docs/report.md has the schema.
type jsonCoverage struct {
	jsonMeta
	Filter   string             `json:"filter,omitempty"`
	Lost     []jsonLost         `json:"lost"`
	Events   []jsonCoveredEvent `json:"events"`
	Frames   jsonCovered        `json:"frames"`
	Nameless jsonCovered        `json:"nameless"`
	Sources  []jsonCoveredBy    `json:"sources"`
	Reasons  []jsonCoveredBy    `json:"reasons"`
	Places   []jsonCoveredBy    `json:"places"`
	Binaries []jsonBinary       `json:"binaries"`
}

type jsonCoveredEvent struct {
	Name     string `json:"name"`
	Samples  uint64 `json:"samples"`
	Selected uint64 `json:"selected"`
	Lost     uint64 `json:"lost"`
}

type jsonCovered struct {
	Frames  uint64 `json:"frames"`
	Samples uint64 `json:"samples"`
}

type jsonCoveredBy struct {
	Text string `json:"text"`
	jsonCovered
}

type jsonBinary struct {
	Path    string `json:"path"`
	BuildID string `json:"build_id,omitempty"`
	Reason  string `json:"reason"`
	jsonCovered
}

func (c *Coverage) json(w io.Writer, p *profile.Profile, o *Options) error {
	by := func(list []CoveredBy) []jsonCoveredBy {
		out := make([]jsonCoveredBy, 0, len(list))
		for _, x := range list {
			out = append(out, jsonCoveredBy{x.Text, jsonCovered(x.Covered)})
		}
		return out
	}
	j := jsonCoverage{
		jsonMeta: newJSONMeta(p), Filter: o.Filter.String(), Lost: jsonLosses(p.Lost),
		Events: []jsonCoveredEvent{}, Binaries: []jsonBinary{},
		Frames: jsonCovered(c.Frames), Nameless: jsonCovered(c.Nameless),
		Sources: by(c.Sources), Reasons: by(c.Reasons), Places: by(c.Places),
	}
	for _, e := range c.Events {
		j.Events = append(j.Events, jsonCoveredEvent(e))
	}
	for i, b := range c.Binaries {
		if o.MaxEntries > 0 && i == o.MaxEntries {
			break
		}
		j.Binaries = append(j.Binaries, jsonBinary{b.Path, b.BuildID, b.Reason, jsonCovered(b.Covered)})
	}
	b, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
