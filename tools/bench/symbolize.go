// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	symbolizeName = "lines and inlined calls of 50,000 addresses"
	inlineName    = "report of dumped stacks with inlined calls"
	addresses     = 50_000
)

// symbolRows measure source lines and inlined calls: against llvm-symbolizer for
// addresses of Go's compiler, and against perf for dumped stacks.
func (b *bench) symbolRows(ctx context.Context, w io.Writer) error {
	if strings.Contains(symbolizeName, b.rows) {
		if err := b.symbolize(ctx, w); err != nil {
			return err
		}
	}
	if strings.Contains(inlineName, b.rows) {
		return b.inlineRow(ctx, w)
	}
	return nil
}

// symbolize has both tools print names, lines and inlined calls of random
// addresses: gantry as frames of a recording.
func (b *bench) symbolize(ctx context.Context, w io.Writer) error {
	llvm, err := exec.LookPath("llvm-symbolizer")
	if err != nil {
		fmt.Fprintf(w, "\n%s: not measured, there is no llvm-symbolizer.\n", symbolizeName)
		return nil
	}
	program, err := b.symbolizeProgram(ctx)
	if err != nil {
		return err
	}
	in := filepath.Join(b.dir, "addresses")
	if err := writeAddresses(program, in+".txt", in+".data"); err != nil {
		return err
	}
	store := filepath.Join(b.dir, "lines-store")
	defer os.RemoveAll(store)
	gantry := []string{b.gantry, "script", "-i", in + ".data", "--inline", "-F", "ip,sym,srcline", "--buildid-dir",
		store}
	var peer, cold, second, without samples
	for range b.size.rounds {
		os.RemoveAll(store)
		if err := os.MkdirAll(filepath.Join(store, ".build-id"), 0o755); err != nil {
			return err
		}
		for _, x := range []struct {
			cost *samples
			argv []string
		}{
			{&peer, []string{llvm, "--obj=" + program, "--inlines", "@" + in + ".txt"}},
			{&cold, gantry}, {&second, gantry},
			{&without, []string{b.gantry, "script", "-i", in + ".data", "-F", "ip", "--buildid-dir", store}},
		} {
			c, err := measure(ctx, b.dir, x.argv...)
			if err != nil {
				return err
			}
			x.cost.add(c)
		}
	}
	p := peer.median()
	fmt.Fprintf(w, "\n| %s | llvm-symbolizer CPU s | gantry CPU s | ratio | target | | RSS MB | gantry RSS MB "+
		"|\n|---|---|---|---|---|---|---|---|\n", symbolizeName)
	for _, x := range []struct {
		name   string
		cost   cost
		target float64
	}{{"cold", cold.median(), 1}, {"second run", second.median(), 1. / 5}} {
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %.0f | %.0f |\n", x.name, p.cpu, x.cost.cpu,
			verdict(p.cpu, x.cost.cpu, x.target), p.rss, x.cost.rss)
	}
	fmt.Fprintf(w, "\nOf gantry's, %.2f s is reading the recording and printing addresses.\n", without.median().cpu)
	return nil
}

// symbolizeProgram is Go's compiler, built with DWARF, which the one that is
// installed has not. To only try the benchmark out, gantry will do.
func (b *bench) symbolizeProgram(ctx context.Context) (string, error) {
	if b.size == sizes["tiny"] {
		return b.gantry, nil
	}
	program := filepath.Join(b.dir, "compile")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "cmd/compile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, text)
	}
	return program, nil
}

// writeAddresses writes random addresses of a program's code as text, and as a
// recording with a sample for each, whose call chain is the address.
func writeAddresses(program, text, data string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	code := f.Section(".text")
	if code == nil || code.Size == 0 {
		return fmt.Errorf("%s: no code", program)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var list bytes.Buffer
	rec := newPerfFile()
	rec.mmap(program, code)
	for range addresses {
		addr := code.Addr + rnd.Uint64N(code.Size)
		fmt.Fprintf(&list, "%#x\n", addr)
		rec.sample(addr)
	}
	if err := os.WriteFile(text, list.Bytes(), 0o600); err != nil {
		return err
	}
	return os.WriteFile(data, rec.bytes(), 0o600)
}

// perfFile is a perf.data file in the making, as tools/perf/util/header.h and
// include/uapi/linux/perf_event.h describe it.
type perfFile struct {
	data []byte
	time uint64
}

const (
	fileHeader = 104
	attrSize   = 112 // PERF_ATTR_SIZE_VER5
	cpuClock   = 0
	// PERF_SAMPLE_IP, TID, TIME, CALLCHAIN.
	sampleType  = 1 | 2 | 4 | 32
	contextUser = ^uint64(511) // PERF_CONTEXT_USER
	miscUser    = 2
	recordMmap  = 1
)

func newPerfFile() *perfFile { return &perfFile{} }

// record appends a record with this content, a multiple of 8 bytes.
func (p *perfFile) record(typ uint32, body []byte) {
	le := binary.LittleEndian
	p.data = le.AppendUint32(p.data, typ)
	p.data = le.AppendUint16(p.data, miscUser)
	p.data = le.AppendUint16(p.data, uint16(8+len(body)))
	p.data = append(p.data, body...)
}

func (p *perfFile) mmap(path string, code *elf.Section) {
	le := binary.LittleEndian
	const page = 4096
	skip := code.Addr % page
	b := le.AppendUint32(le.AppendUint32(nil, 1), 1)
	for _, v := range []uint64{code.Addr - skip, (code.Size + skip + page - 1) / page * page, code.Offset - skip} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, path...)
	p.record(recordMmap, append(b, make([]byte, 8-len(path)%8)...))
}

func (p *perfFile) sample(addr uint64) {
	le := binary.LittleEndian
	p.time++
	b := le.AppendUint64(nil, addr)
	b = le.AppendUint32(le.AppendUint32(b, 1), 1)
	for _, v := range []uint64{p.time, 2, contextUser, addr} {
		b = le.AppendUint64(b, v)
	}
	p.record(recordSample, b)
}

// bytes is the whole file: header, the one event, the records.
func (p *perfFile) bytes() []byte {
	le := binary.LittleEndian
	attr := make([]byte, attrSize)
	le.PutUint32(attr, 1) // PERF_TYPE_SOFTWARE
	le.PutUint32(attr[4:], attrSize)
	le.PutUint64(attr[8:], cpuClock)
	le.PutUint64(attr[16:], 1) // period
	le.PutUint64(attr[24:], sampleType)
	attr = append(attr, make([]byte, 16)...) // no ids
	b := []byte("PERFILE2")
	for _, v := range []uint64{fileHeader, uint64(len(attr)), fileHeader, uint64(len(attr)),
		fileHeader + uint64(len(attr)), uint64(len(p.data)), 0, 0} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, make([]byte, fileHeader-len(b))...)
	return append(append(b, attr...), p.data...)
}

// inlineRow compares reports of dumped stacks with inlined calls. perf, which
// takes minutes for them, is ended after a while.
func (b *bench) inlineRow(ctx context.Context, w io.Writer) error {
	in, err := b.dumpInput(ctx)
	if err != nil {
		return fmt.Errorf("make the input of dumped stacks: %w", err)
	}
	limit := 120 * time.Second
	switch {
	case b.size == sizes["tiny"]:
		limit = 2 * time.Second
	case b.size.input <= sizes["small"].input && b.rows == "":
		limit = 20 * time.Second
	}
	args := []string{"report", "--no-children", "--sort", "comm,dso,sym", "-i", in.path}
	perf, ended, err := measureUntil(ctx, limit, b.dir,
		append([]string{b.perf}, append(args, "--stdio", "-g", "caller")...)...)
	if err != nil {
		return err
	}
	var g samples
	for range b.size.rounds {
		c, err := measure(ctx, b.dir, append([]string{b.gantry}, append(args, "--call-graph=caller")...)...)
		if err != nil {
			return err
		}
		g.add(c)
	}
	c := g.median()
	note := ""
	if ended {
		note = fmt.Sprintf(" (ended after %v of CPU time)", limit)
	}
	fmt.Fprintf(w, "\n| %s | perf CPU s | gantry CPU s | ratio | target | |\n|---|---|---|---|---|---|\n", inlineName)
	fmt.Fprintf(w, "| %d samples | %.2f%s | %.2f | %s |\n", in.samples, perf.cpu, note, c.cpu,
		verdict(perf.cpu, c.cpu, 1./20))
	return nil
}
