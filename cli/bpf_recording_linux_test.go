// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// bpfText writes a recording as text.
func bpfText(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rec.txt")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runBPF runs gantry bpf with arguments.
func runBPF(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := newBPFCmd(&env{stdin: strings.NewReader(""), stdout: &out, stderr: &errs})
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String()
}

const bpfTestEvent = "event \"dummy\" type=software config=dummy sample=tid|time flags=sample_id_all\n"

// Of a file without gantry's section, the kernel's records tell the lives.
func TestBPFLogRecords(t *testing.T) {
	path := bpfText(t, "perfdata little\n"+bpfTestEvent+
		`BPF_EVENT type=prog_load id=4 tag=0000000000000004
KSYMBOL addr=0xffffffffc0000000 len=32 type=bpf "bpf_prog_0000000000000007_first" @pid=1 @tid=1 @time=1000
BPF_EVENT type=prog_load id=7 tag=0000000000000007 @pid=1 @tid=1 @time=2000
BPF_EVENT type=prog_load id=8 tag=0000000000000008 @pid=1 @tid=1 @time=3000
BPF_EVENT type=prog_unload id=7 tag=0000000000000007 @pid=1 @tid=1 @time=5000
BPF_EVENT type=prog_unload id=4 tag=0000000000000004 @pid=1 @tid=1 @time=6000
`)
	out, errs := runBPF(t, "log", "-i", path)
	var got []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		got = append(got, strings.Join(f[2:], " "))
	}
	want := []string{"load 7 ? first", "load 8 ? 0000000000000008", "unload 7 ? first", "unload 4 ? 0000000000000004"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || errs != "" {
		t.Errorf("log:\n%s\n%s", out, errs)
	}
}

// Of a stream gantry's section comes first, and the records are read all the same.
// A loader that was gone before /proc was read has the name of the sideband.
func TestBPFLoaderName(t *testing.T) {
	section := `{"version":1,"bpf":[{"id":7,"loaded":2000,"loader":{"pid":5}},{"id":8,"loaded":500,"loader":{"pid":5}}]}`
	path := bpfText(t, "perfdata little\nfeature GANTRY "+strconv.Quote(section)+"\n"+bpfTestEvent+
		`COMM pid=5 tid=5 "sh" @pid=5 @tid=5 @time=1000
COMM pid=5 tid=5 "loader" @pid=5 @tid=5 @time=1500
COMM pid=5 tid=6 "thread" @pid=5 @tid=6 @time=1600
COMM pid=5 tid=5 "later" @pid=5 @tid=5 @time=3000
`)
	out, _ := runBPF(t, "log", "-i", path)
	if !strings.Contains(out, "by loader(5)") || !strings.Contains(out, "by ?(5)") {
		t.Error(out)
	}
}

func TestBPFLogStream(t *testing.T) {
	path := bpfText(t, "perfdata little pipe\nfeature GANTRY "+
		`"{\"version\":1,\"host_namespaces\":{\"pid\":1,\"mnt\":2}}"`+"\n"+bpfTestEvent+
		"BPF_EVENT type=prog_load id=7 tag=0000000000000007 @pid=1 @tid=1 @time=2000\n"+
		"BPF_EVENT type=prog_unload id=7 tag=0000000000000007 @pid=1 @tid=1 @time=5000\n")
	out, errs := runBPF(t, "log", "-i", path)
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "unload") || errs != "" {
		t.Errorf("log:\n%s\n%s", out, errs)
	}
}

// Of a program whose details were too many, the type is known.
func TestBPFLogType(t *testing.T) {
	path := bpfText(t, "perfdata little\nfeature GANTRY "+
		`"{\"version\":1,\"bpf\":[{\"id\":5,\"name\":\"big\",\"type\":2,\"loaded\":5,\"missed\":\"too much\"}]}"`+
		"\nfeature SAMPLE_TIME first=1 last=2\n"+bpfTestEvent+"COMM pid=1 tid=1 \"a\" @pid=1 @tid=1 @time=1\n")
	if out, errs := runBPF(t, "log", "-i", path); !strings.Contains(out,
		" kprobe           big  no details: too much") || errs != "" {
		t.Errorf("log:\n%s\n%s", out, errs)
	}
}

// Nothing of a recording reaches the terminal as a control character.
func TestBPFPrintable(t *testing.T) {
	path := bpfText(t, "perfdata little\nfeature GANTRY "+
		`"{\"version\":1,\"host_namespaces\":{\"pid\":1,\"mnt\":2},\"containers\":[{\"id\":\"0123456789abcdef\",\"name\":\"w\\u001beb\",\"cgroup\":77,\"cgroup_path\":\"/w\"}],`+
		`\"bpf\":[{\"id\":5,\"tag\":\"a\\u001bb\",\"loaded\":5,\"attached\":[{\"kind\":\"k\\u001b\"}],\"loader\":{\"pid\":9,\"cgroup\":77,\"namespaces\":{\"pid\":3,\"mnt\":4}}}]}"`+
		"\nfeature SAMPLE_TIME first=1 last=2\n"+bpfTestEvent+"COMM pid=1 tid=1 \"a\" @pid=1 @tid=1 @time=1\n")
	for _, command := range []string{"log", "dump"} {
		out, errs := runBPF(t, command, "-i", path)
		if strings.Contains(out+errs, "\x1b") || !strings.Contains(out, `a\x1bb`) {
			t.Errorf("%s: %q %q", command, out, errs)
		}
	}
}

// Many lines with the same long text do not become gigabytes.
func TestBPFDumpBound(t *testing.T) {
	a, b := strings.Repeat("a", 4000), strings.Repeat("b", 4000)
	data, off := testutil.MakeBTF([]string{"f"}, "/src/a.bpf.c", a, b)
	d := &bpfprog.Details{BTF: data}
	d.Xlated = []byte{0x95, 0, 0, 0, 0, 0, 0, 0}
	for i := range uint32(200_000) {
		text := off[a]
		if i%2 == 1 {
			text = off[b]
		}
		d.Lines = append(d.Lines, perfdata.BPFLine{File: off["/src/a.bpf.c"], Text: text, LineCol: (i + 1) << 10})
	}
	p := recordedBPF{details: d}
	var out bytes.Buffer
	dumpBPF(&out, &p)
	if out.Len() > 2*maxBPFSource || !strings.Contains(out.String(), "lines of source are left out") {
		t.Errorf("%d bytes of text: %.200q", out.Len(), out.String())
	}
	out.Reset()
	if err := writeBPFDumps(bufio.NewWriter(&out), []recordedBPF{p, {}}); err != nil {
		t.Fatal(err)
	}
	var list []bpfDump
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list) != 2 ||
		len(list[0].Lines)+list[0].LinesLeft != 200_000 {
		t.Errorf("%d programs: %v", len(list), err)
	}
	want := new(bytes.Buffer)
	out.Reset()
	short := []recordedBPF{{}, {}}
	if err := errors.Join(writeBPFDumps(bufio.NewWriter(&out), short),
		writeJSON(want, []bpfDump{{}, {}})); err != nil || out.String() != want.String() {
		t.Errorf("%v: %s, not %s", err, &out, want)
	}
}

// fullWriter is a file system without room.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, fs.ErrInvalid }

// Following ends when nothing can be written.
func TestBPFFollowFull(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	logger := &bpfLogger{f: &bpfLogFlags{formatFlags: formatFlags{format: "text"}}, to: fullWriter{}, ctx: ctx,
		cancel: cancel, programs: bpfprog.NewProgramTable()}
	logger.load(1)
	if ctx.Err() != nil {
		t.Error("ended without a program")
	}
	logger.write(&bpfLogEntry{Action: "load"})
	if ctx.Err() == nil || !errors.Is(logger.failed, fs.ErrInvalid) {
		t.Errorf("goes on: %v", logger.failed)
	}
	var out bytes.Buffer
	sumUpBPF(&out, bpfprog.Tally{Lost: 2, Forgot: 1, Notes: []string{"a note"}})
	if out.String() != "gantry: BPF programs: a note\ngantry: 3 records of BPF programs were lost\n" {
		t.Error(out.String())
	}
}
