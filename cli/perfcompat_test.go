// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestPerfFlags writes each flag of perf that is listed: none of them may be a
// flag of the command, and each gets its answer.
func TestPerfFlags(t *testing.T) {
	root := newRootCmd(&env{stdin: strings.NewReader("")})
	seen := make(map[string]bool)
	for _, cmd := range root.Commands() {
		seen[cmd.Name()] = true
		known := make(map[string]string)
		for text, names := range perfFlags[cmd.Name()] {
			for name := range strings.FieldsSeq(names) {
				if other, twice := known[name]; twice {
					t.Errorf("%s: %s has two answers: %s; %s", cmd.Name(), name, other, text)
				}
				known[name] = text
				flag := "--" + name
				if len(name) == 1 {
					flag = "-" + name
				}
				var stdout, stderr bytes.Buffer
				status := Main(strings.NewReader(""), &stdout, &stderr, []string{cmd.Name(), flag})
				if status != 2 || !strings.Contains(stderr.String(), "\nhint: "+text+"\n") {
					t.Errorf("gantry %s %s: status %d, %s", cmd.Name(), flag, status, stderr.String())
				}
			}
		}
	}
	for name := range otherCommands {
		if seen[name] {
			t.Errorf("%s is a command", name)
		}
		var stdout, stderr bytes.Buffer
		status := Main(strings.NewReader(""), &stdout, &stderr, []string{name})
		if status != 2 || !strings.Contains(stderr.String(), "\nhint: "+otherCommands[name]+"\n") {
			t.Errorf("gantry %s: status %d, %s", name, status, stderr.String())
		}
	}
}

func TestPerfWords(t *testing.T) {
	for _, tt := range []struct{ args, hint string }{
		{"report --sort overhead,sym", "leave overhead out"},
		{"report -n -i x", "--show-nr-samples"},
		{"report -n --stdio", "--show-nr-samples"},
		{"annotate -n --stdio", "--show-nr-samples"},
		{"top --stdio", "--batch"},
		{"--nonsense", "see 'gantry --help'"},
		{"report --nonsense", "see 'gantry report --help'"},
	} {
		var stdout, stderr bytes.Buffer
		status := Main(strings.NewReader(""), &stdout, &stderr, strings.Fields(tt.args))
		_, hint, _ := strings.Cut(stderr.String(), "\nhint: ")
		if status != 2 || !strings.Contains(hint, tt.hint) {
			t.Errorf("gantry %s: status %d, %s", tt.args, status, stderr.String())
		}
	}
}
