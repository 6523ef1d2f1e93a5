// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// definitionsOf runs a command with the flags of definitions.
func definitionsOf(t *testing.T, byDefault bool, args ...string) (container.Definitions, error) {
	t.Helper()
	var f definitionFlags
	var defs container.Definitions
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
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
	if err != nil || len(defs) != 3 || defs.Find("web").Rule() != "uts" || defs.Find("vm").Rule() != "uts,pid" ||
		defs.Find("job") == nil {
		t.Errorf("%v, %v", defs, err)
	}
	for _, tt := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--define", "web=pid,foo"}, `--define: definition "web=pid,foo", column 9: unknown namespace "foo"`,
			2},
		{[]string{"--define", "web=pid", "--define", "web=net"},
			`--define: definition "web=net", column 1: "web" is defined twice`, 2},
		{[]string{"--define", "pod=net"}, `--define: definition "pod=net", column 1: "pod" is built in`, 2},
		{[]string{"--config", ""}, "--config is empty", 2},
		{[]string{"--config", file + ".no"}, "read configuration: open " + file + ".no: no such file or directory", 1},
		{[]string{"--config", filepath.Dir(file)},
			"read configuration: read " + filepath.Dir(file) + ": is a directory", 1},
		{append(manyDefinitions("a", 60), manyDefinitions("b", 5)...), "", 2},
	} {
		defs, err := definitionsOf(t, false, tt.args...)
		var exit *exitError
		code := 1
		if errors.As(err, &exit) {
			code = exit.code
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || code != tt.code || hint.Of(err) == "" ||
			defs != nil {
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
