// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
