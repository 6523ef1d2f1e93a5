// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/container"
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
	c, err := Parse("c.yaml", []byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Definitions) != 2 || c.Definitions[0].String() != "web=pid,net" || c.Definitions[1].String() != "job=mnt;cgroup=/jobs/*;cgroup=/**/batch-*" {
		t.Errorf("%v", c.Definitions)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "definitions:\n", "{}\n", "definitions: {}\n"} {
		if c, err := Parse("c.yaml", []byte(empty)); err != nil || len(c.Definitions) != 0 {
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
		{"policy: {}", "c.yaml:1:9: policy is not a list"},
		{"policy: [{tasks: all}]", "c.yaml:1:18: \"all\" is not one of nobody, root, anyone"},
		{"policy: [{events: [magic]}]", "c.yaml:1:20: "}, {"policy: [{tracepoints: [all]}]", "c.yaml:1:25: "},
		{"policy: [{max-events: -1}]", "c.yaml:1:23: "}, {"policy: [{kernel: maybe}]", "c.yaml:1:19: "},
		{"policy: [{definition: none}]", "c.yaml: policy: no definition"}, {"policy: [{selector: '=='}]", "c.yaml:1:21: "},
		{"policy: [{max-memory: much}]", "c.yaml:1:23: "}, {"policy: [{colour: red}]", "c.yaml:1:11: unknown field"},
		{"just text\n", "c.yaml:1:1: the configuration is not a list of NAME: VALUE"}, {"\x00", "c.yaml"},
	} {
		c, err := Parse("c.yaml", []byte(tt.text))
		var bad *Error
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tt.want) || c != nil {
			t.Errorf("%q: %v, %v", tt.text, c, err)
		}
	}
	_, err := Parse("c.yaml", []byte("definitions: {web: {namespaces: [foo]}}"))
	if !errors.Is(err, container.ErrNamespace) {
		t.Errorf("%v is no ErrNamespace", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{goodConfig, "definitions: {a: {namespaces: [pid, \"foo\"]}}", "a: &a [*a]", "--- 1\n--- 2", "definitions: {größe: {}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("c.yaml", []byte(text))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		var bad *Error
		if err == nil {
			for _, d := range c.Definitions {
				if again, err := container.ParseDefinition(d.String()); err != nil || !again.Equal(&d) {
					t.Fatalf("%v: %v, %v", d, again, err)
				}
			}
		} else if !errors.As(err, &bad) || bad.line < 0 || bad.line > len(text)+1 {
			t.Fatalf("%v", err)
		}
	})
}

func TestConfigPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(path); err == nil || !strings.Contains(err.Error(), "nothing is written") {
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
	c, err := Read(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	if err != nil || c.Definitions.Find("vm") == nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestPolicy(t *testing.T) {
	c, err := Parse("c.yaml", []byte(`
definitions: {vm: {namespaces: [uts]}}
policy:
- namespace: prod
  selector: app=web,tier!=db
  definition: vm
  tasks: root
  all-tasks: nobody
  kernel: true
  events: [software]
  tracepoints: ["raw_syscalls:*"]
  max-frequency: 999
  max-memory: 8M
- container: [a, "b-*"]
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Policy) != 2 {
		t.Fatalf("%+v", c.Policy)
	}
	r := c.Policy[0]
	if r.Match.String() == "" || r.Definition != "vm" || r.Tasks != "root" || r.AllTasks != "nobody" || !*r.Kernel ||
		len(r.Events) != 1 || len(r.Tracepoints) != 1 || *r.MaxFrequency != 999 ||
		*r.MaxRings != 8<<20 || r.MaxEvents != nil {
		t.Errorf("%+v", r)
	}
	if r := c.Policy[1]; len(r.Match.Names) != 2 || r.Kernel != nil || r.Events != nil {
		t.Errorf("%+v", r)
	}
}
