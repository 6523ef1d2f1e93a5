// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// bpfDumpFlags are the flags of gantry bpf dump.
type bpfDumpFlags struct {
	input string
	formatFlags
}

func newBPFDumpCmd(e *env) *cobra.Command {
	f := new(bpfDumpFlags)
	cmd := &cobra.Command{
		Use:   "dump [flags] [ID]...",
		Short: "show instructions, machine code and source lines of BPF programs",
		Long: `Show BPF programs: what they were translated to, and for each subprogram its
machine code, with the lines of source that they come from. With -i, those of a
recording, all without an ID; else those that are loaded.`,
		Example: `  gantry bpf dump 42
  gantry bpf dump -i perf.data        all of a recording
  gantry bpf dump --format json 42    with code, types and lines as data`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := bpfIDs(args)
			if err == nil && len(ids) == 0 && f.input == "" {
				err = errors.New("which program? 'gantry bpf list' has the ids")
			}
			if err != nil {
				return usageError(cmd, err)
			}
			return f.formatFlags.run(e, cmd, func(e *env) error { return f.dump(e, ids) })
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.input, "input", "i", "", "of a recording: `FILE`, or - for standard input")
	f.formatFlags.register(cmd, "text", "json")
	return cmd
}

func (f *bpfDumpFlags) dump(e *env, ids []uint32) error {
	list, err := f.find(e, ids)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(e.stdout)
	if f.format == "json" {
		return writeBPFDumps(b, list)
	}
	for i := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		dumpBPF(b, &list[i])
		if err := b.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// writeBPFDumps writes programs as a list in JSON, one by one: all of them may be
// much.
func writeBPFDumps(b *bufio.Writer, list []recordedBPF) error {
	b.WriteByte('[')
	between := "\n  "
	for i := range list {
		text, err := json.MarshalIndent(newBPFDump(&list[i]), "  ", "  ")
		if err != nil {
			return err
		}
		b.WriteString(between)
		if _, err := b.Write(text); err != nil {
			return err
		}
		between = ",\n  "
	}
	if len(list) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	return b.Flush()
}

// find reads the programs.
func (f *bpfDumpFlags) find(e *env, ids []uint32) ([]recordedBPF, error) {
	if f.input == "" {
		return liveBPF(ids)
	}
	rec, err := readBPFRecording(e, f.input)
	if err != nil || len(ids) == 0 {
		return rec.all(), err
	}
	var list []recordedBPF
	for _, id := range ids {
		p, err := rec.find(id)
		if err != nil {
			return nil, err
		}
		list = append(list, *p)
	}
	return list, nil
}

func (r *bpfRecording) all() []recordedBPF {
	if r == nil {
		return nil
	}
	return r.programs
}

// liveBPF reads programs that are loaded.
func liveBPF(ids []uint32) ([]recordedBPF, error) {
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	var list []recordedBPF
	for _, id := range ids {
		d, err := new(bpfprog.Reader).Read(id)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, hint.Wrap(err, "'gantry bpf list' shows what is loaded")
		case errors.Is(err, os.ErrPermission):
			return nil, bpfHint(err)
		case err != nil:
			return nil, err
		}
		p := recordedBPF{details: d}
		p.fill(d)
		p.Loaded = boot.Add(time.Duration(d.LoadTime))
		list = append(list, p)
	}
	return list, nil
}

// bpfDump is a program in --format json. Bytes are base64.
type bpfDump struct {
	bpfProgram
	XlatedCode []byte        `json:"xlated,omitempty"`
	JITedCode  []byte        `json:"jited,omitempty"`
	BTFData    []byte        `json:"btf_data,omitempty"`
	Lines      []bpfDumpLine `json:"lines,omitempty"`
	// LinesLeft are lines that are not in Lines, which have maxBPFSource.
	LinesLeft int `json:"lines_left_out,omitempty"`
}

// maxBPFSource is how many bytes of source, with the names of its files, are
// shown of a program. In a recording many lines may have the same long text.
const maxBPFSource = 4 << 20

// bpfDumpLine is where a line of source begins.
type bpfDumpLine struct {
	Insn    uint32 `json:"instruction"`
	Address string `json:"address,omitempty"` // of the machine code
	File    string `json:"file,omitempty"`
	Line    uint32 `json:"line"`
	Column  uint32 `json:"column,omitempty"`
	Text    string `json:"text,omitempty"`
}

func newBPFDump(p *recordedBPF) bpfDump {
	x := bpfDump{bpfProgram: p.bpfProgram}
	d := p.details
	if d == nil {
		return x
	}
	x.XlatedCode, x.JITedCode, x.BTFData = d.Xlated, d.JITed, d.BTF
	types, _ := perfdata.ParseBTF(d.BTF, perf.LittleEndian)
	text := bpfStrings(types)
	left := maxBPFSource
	for i, l := range d.Lines {
		file, source := text(l.File), text(l.Text)
		if left -= len(file) + len(source); left < 0 {
			x.LinesLeft = len(d.Lines) - i
			break
		}
		line := bpfDumpLine{Insn: l.Insn, File: file, Line: l.Line(), Column: l.Column(), Text: source}
		if i < len(d.JITedLines) {
			line.Address = fmt.Sprintf("%#x", d.JITedLines[i])
		}
		x.Lines = append(x.Lines, line)
	}
	return x
}

// bpfStrings gives the strings of BTF, one that is asked for often only once.
func bpfStrings(types *perfdata.BTF) func(uint32) string {
	known := make(map[uint32]string)
	return func(off uint32) string {
		s, ok := known[off]
		if !ok {
			s = types.String(off)
			known[off] = s
		}
		return s
	}
}

// dumpBPF writes a program for people.
func dumpBPF(w io.Writer, p *recordedBPF) {
	x := newBPFDump(p)
	fmt.Fprintf(w, "program %d: %s %s, tag %s, uid %d\n", p.ID, p.Type, container.Printable(p.Name),
		container.Printable(p.Tag), p.UID)
	if !p.Loaded.IsZero() {
		fmt.Fprintf(w, "loaded %s\n", p.Loaded.Local().Format("2006-01-02 15:04:05"))
	}
	if p.Loader != nil {
		fmt.Fprintf(w, "loader %s %s\n", p.Loader, container.Printable(p.Loader.Container))
	}
	for _, a := range p.Attached {
		fmt.Fprintf(w, "attached %s %s\n", container.Printable(a.Kind), container.Printable(a.Target))
	}
	if len(p.Maps) > 0 {
		fmt.Fprintf(w, "maps %v\n", p.Maps)
	}
	if p.BTF != 0 {
		fmt.Fprintf(w, "btf %d, %d bytes\n", p.BTF, len(x.BTFData))
	}
	if p.Missed != "" {
		fmt.Fprintf(w, "no details: %s\n", container.Printable(p.Missed))
	}
	if x.LinesLeft > 0 {
		fmt.Fprintf(w, "the last %s lines of source are left out: they are too long\n", thousands(uint64(x.LinesLeft)))
	}
	lines := lineWriter{w: w}
	dumpInstructions(w, &x, &lines)
	dumpCode(w, &x, &lines)
}

// dumpInstructions writes the translated instructions.
func dumpInstructions(w io.Writer, x *bpfDump, source *lineWriter) {
	if len(x.XlatedCode) == 0 {
		return
	}
	fmt.Fprintf(w, "\ninstructions:\n")
	r := bytes.NewReader(x.XlatedCode)
	lines := x.Lines
	for r.Len() > 0 {
		at := uint32(len(x.XlatedCode)-r.Len()) / asm.InstructionSize
		for len(lines) > 0 && lines[0].Insn <= at {
			source.write(&lines[0])
			lines = lines[1:]
		}
		var ins asm.Instruction
		if err := ins.Unmarshal(r, binary.LittleEndian, "linux"); err != nil {
			fmt.Fprintf(w, "%5d: %v\n", at, err)
			return
		}
		fmt.Fprintf(w, "%5d: %v\n", at, ins)
	}
}

// lineWriter writes lines of source, one after itself only once.
type lineWriter struct {
	w    io.Writer
	file string
	line uint32
}

func (s *lineWriter) write(l *bpfDumpLine) {
	if l.Line == 0 || l.File == s.file && l.Line == s.line {
		return
	}
	s.file, s.line = l.File, l.Line
	fmt.Fprintf(s.w, "; %s:%d  %s\n", container.Printable(l.File), l.Line,
		container.Printable(strings.TrimSpace(l.Text)))
}

// dumpCode writes the machine code of each subprogram, a row for each line of
// source at least.
func dumpCode(w io.Writer, x *bpfDump, source *lineWriter) {
	code := x.JITedCode
	lines := x.Lines
	for _, s := range x.Subprograms {
		*source = lineWriter{w: w}
		fmt.Fprintf(w, "\n%s, %d bytes at %s:\n", container.Printable(s.Symbol), s.Size, s.Address)
		var start uint64
		fmt.Sscanf(s.Address, "%v", &start)
		n := min(int(s.Size), len(code))
		for off := 0; off < n; {
			end := min(off+16, n)
			for len(lines) > 0 {
				var at uint64
				fmt.Sscanf(lines[0].Address, "%v", &at)
				if at < start || at >= start+uint64(s.Size) {
					break // of another subprogram
				}
				if at > start+uint64(off) {
					end = min(end, int(at-start))
					break
				}
				source.write(&lines[0])
				lines = lines[1:]
			}
			fmt.Fprintf(w, "%6x: % x\n", off, code[off:end])
			off = end
		}
		code = code[n:]
	}
}
