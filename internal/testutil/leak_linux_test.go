// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestCheckLeaks(t *testing.T) {
	var file *os.File
	var child *exec.Cmd
	for _, tt := range []struct {
		name, want string
		leak       func(t testing.TB)
	}{
		{"nothing", "", func(testing.TB) {}},
		{"fd", "file descriptor: /etc/passwd", func(t testing.TB) {
			var err error
			if file, err = os.Open("/etc/passwd"); err != nil {
				t.Fatal(err)
			}
		}},
		{"child", "child process", func(t testing.TB) {
			child = exec.Command("cat")
			in, err := child.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { in.Close() })
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := record(t, func(t testing.TB) {
				CheckLeaks(t)
				tt.leak(t)
			})
			if tt.want == "" && r.failed != "" || !strings.Contains(r.failed, tt.want) {
				t.Errorf("reported %q, want %q", r.failed, tt.want)
			}
		})
	}
	file.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

func TestKernel(t *testing.T) {
	if got := Kernel("2.6").Missing(); got != "" {
		t.Errorf("2.6: %s", got)
	}
	if got := Kernel("99.0").Missing(); got == "" {
		t.Error("this kernel is said to be 99.0 or newer")
	}
	if got := Kernel("new").Missing(); got == "" {
		t.Error("a version without numbers is said to be met")
	}
}
