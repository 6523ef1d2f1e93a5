// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/view/report"
	"github.com/gantry-tools/gantry/view/script"
)

const goodConfig = `# what a container is here
definitions:
  web:
    namespaces: [pid, net]
  job:
    namespaces:
      - mnt
    cgroups:
      - /jobs/*
      - "**/batch-*"
`

func TestParseConfig(t *testing.T) {
	c, err := parseConfig("c.yaml", []byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.definitions) != 2 || c.definitions[0].String() != "web=pid,net" || c.definitions[1].String() != "job=mnt;cgroup=/jobs/*;cgroup=/**/batch-*" {
		t.Errorf("%v", c.definitions)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "definitions:\n", "{}\n", "definitions: {}\n"} {
		if c, err := parseConfig("c.yaml", []byte(empty)); err != nil || len(c.definitions) != 0 {
			t.Errorf("%q: %v, %v", empty, c, err)
		}
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"definition:\n", `c.yaml:1:1: unknown field "definition": the configuration has definitions`},
		{"definitions:\n  web: [pid]\n", "c.yaml:2:8: a definition is not a list of NAME: VALUE"},
		{"definitions:\n  web:\n    namespace: [pid]\n", `c.yaml:3:5: unknown field "namespace": a definition has cgroups, namespaces`},
		{"definitions:\n  web:\n    namespaces: pid\n", "c.yaml:3:17: not a list: write [a, b]"},
		{"definitions:\n  web:\n    namespaces: [pid, foo]\n", `c.yaml:3:23: unknown namespace "foo"`},
		{"definitions:\n  web:\n    namespaces: [pid, pid]\n", "c.yaml:3:23: namespace pid is given twice"},
		{"definitions:\n  web:\n    namespaces: [pid, [net]]\n", "c.yaml:3:23: not a text"},
		{"definitions:\n  web: {}\n", "c.yaml:2:8: it names neither"},
		{"definitions:\n  web:\n    namespaces: []\n", "c.yaml:3:5: it names neither"},
		{"definitions:\n  web:\n    cgroups: [/ok, /a/b**]\n", "c.yaml:3:24: ** is not a whole component"},
		{"definitions:\n  web:\n    cgroups: [/ok, \"/a/b**\"]\n", "c.yaml:3:20: ** is not a whole component"},
		{"definitions:\n  a b: {namespaces: [pid]}\n", `c.yaml:2:4: "a b" cannot be a name`},
		{"definitions:\n  comm: {namespaces: [pid]}\n", `c.yaml:2:3: "comm" means something else`},
		{"definitions:\n  pod: {namespaces: [net]}\n", `c.yaml:2:3: "pod" is built in`},
		{"definitions:\n  a: {namespaces: [pid]}\n  a: {namespaces: [net]}\n", `c.yaml:3:3: "a" is defined twice`},
		{"definitions: {}\ndefinitions: {}\n", "c.yaml:2:1: definitions is given twice"},
		{"definitions:\n  a: &x {namespaces: [pid]}\n  b: *x\n", "c.yaml:3:6: a definition is not a list of NAME: VALUE"},
		{"definitions:\n  ? [a]\n  : {namespaces: [pid]}\n", "c.yaml:2:5: not a name"},
		{"a: [\n", "c.yaml:"}, {"definitions:\n\tweb:\n", "c.yaml:2: "}, {"---\na: 1\n---\nb: 2\n", "c.yaml:3:1: a second document"},
		{"just text\n", "c.yaml:1:1: the configuration is not a list of NAME: VALUE"}, {"\x00", "c.yaml"},
	} {
		c, err := parseConfig("c.yaml", []byte(tt.text))
		var bad *configError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tt.want) || c != nil {
			t.Errorf("%q: %v, %v", tt.text, c, err)
		}
	}
	_, err := parseConfig("c.yaml", []byte("definitions: {web: {namespaces: [foo]}}"))
	if !errors.Is(err, container.ErrNamespace) {
		t.Errorf("%v is no ErrNamespace", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{goodConfig, "definitions: {a: {namespaces: [pid, \"foo\"]}}", "a: &a [*a]", "--- 1\n--- 2", "definitions: {größe: {}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig("c.yaml", []byte(text))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		var bad *configError
		if err == nil {
			for _, d := range c.definitions {
				if again, err := container.ParseDefinition(d.String()); err != nil || !again.Equal(&d) {
					t.Fatalf("%v: %v, %v", d, again, err)
				}
			}
		} else if !errors.As(err, &bad) || bad.line < 0 || bad.line > len(text)+1 {
			t.Fatalf("%v", err)
		}
	})
}

// definitionsOf runs a command with the flags of definitions.
func definitionsOf(t *testing.T, byDefault bool, args ...string) (container.Definitions, error) {
	t.Helper()
	var f definitionFlags
	var defs container.Definitions
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) (err error) {
		defs, err = f.given(cmd, byDefault)
		return err
	}}
	f.register(cmd.Flags())
	cmd.SetArgs(args)
	err := cmd.Execute()
	return defs, err
}

func TestDefinitionFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(goodConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	// A flag wins over the configuration.
	defs, err := definitionsOf(t, false, "--config", file, "--define", "web=uts", "--define", "vm=uts,pid")
	if err != nil || len(defs) != 3 || defs.Find("web").Rule() != "uts" || defs.Find("vm").Rule() != "uts,pid" || defs.Find("job") == nil {
		t.Errorf("%v, %v", defs, err)
	}
	for _, tt := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--define", "web=pid,foo"}, `--define: definition "web=pid,foo", column 9: unknown namespace "foo"`, 2},
		{[]string{"--define", "web=pid", "--define", "web=net"}, `--define: definition "web=net", column 1: "web" is defined twice`, 2},
		{[]string{"--define", "pod=net"}, `--define: definition "pod=net", column 1: "pod" is built in`, 2},
		{[]string{"--config", ""}, "--config is empty", 2},
		{[]string{"--config", file + ".no"}, "read configuration: open " + file + ".no: no such file or directory", 1},
		{[]string{"--config", filepath.Dir(file)}, "read configuration: read " + filepath.Dir(file) + ": is a directory", 1},
		{append(manyDefinitions("a", 60), manyDefinitions("b", 5)...), "", 2},
	} {
		defs, err := definitionsOf(t, false, tt.args...)
		var exit *exitError
		code := 1
		if errors.As(err, &exit) {
			code = exit.code
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || code != tt.code || hint.Of(err) == "" || defs != nil {
			t.Errorf("%.3q: %v, %v", tt.args, defs, err)
		}
	}
}

func manyDefinitions(prefix string, n int) (args []string) {
	for i := range n {
		args = append(args, "--define", prefix+strings.Repeat("x", i)+"=pid")
	}
	return args
}

func TestSplitContainers(t *testing.T) {
	for _, tt := range []struct{ in, want []string }{
		{[]string{"web,db", "x"}, []string{"web", "db", "x"}},
		{[]string{"web,pod:net:1,ipc:2,db"}, []string{"web", "pod:net:1,ipc:2", "db"}},
		{[]string{"net:1,ipc:2,cgroup:3,cgroup:/a"}, []string{"net:1,ipc:2,cgroup:3,cgroup:/a"}},
		{[]string{"net:1,net:2"}, []string{"net:1", "net:2"}},
		{[]string{"net:1", "ipc:2"}, []string{"net:1", "ipc:2"}},
		{[]string{"pod:any,ipc:2"}, []string{"pod:any", "ipc:2"}},
		{[]string{"nginx:1,ipc:2"}, []string{"nginx:1", "ipc:2"}},
		{[]string{`"a,b",c`}, []string{"a,b", "c"}},
		{nil, nil},
	} {
		if got, err := splitContainers(tt.in); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v", tt.in, got, err)
		}
	}
	for _, bad := range []string{`"a`, ""} {
		if got, err := splitContainers([]string{bad}); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

// TestReservedNames: a definition cannot be called like a column.
func TestReservedNames(t *testing.T) {
	for _, name := range append(report.KeyNames(nil), script.FieldNames(nil)...) {
		if container.BuiltIn().Find(name) == nil && !container.Reserved(name) {
			t.Errorf("%q may be the name of a definition", name)
		}
	}
}

func TestConfigPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := readConfig(path); err == nil || !strings.Contains(err.Error(), "nothing is written") {
		t.Errorf("%+v, %v", c, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("definitions: {vm: {namespaces: [uts]}}"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	c, err := readConfig(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	if err != nil || c.definitions.Find("vm") == nil {
		t.Errorf("%+v, %v", c, err)
	}
}
