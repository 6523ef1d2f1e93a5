// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteOutput(t *testing.T) {
	errEarly := errors.New("early")
	for _, tt := range []struct {
		name      string
		old, text string
		err       error
		want      string
		exists    bool
	}{
		{name: "new", text: "x", want: "x", exists: true},
		{name: "empty", want: "", exists: true},
		{name: "over", old: "long", text: "x", want: "x", exists: true},
		{name: "emptied", old: "long", want: "", exists: true},
		{name: "failed", err: errEarly},
		{name: "failed over", old: "long", err: errEarly, want: "long", exists: true},
	} {
		path := filepath.Join(t.TempDir(), "out")
		if tt.old != "" {
			if err := os.WriteFile(path, []byte(tt.old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := writeOutput(&env{}, path, func(w io.Writer) error {
			if _, err := io.WriteString(w, tt.text); err != nil {
				return err
			}
			return tt.err
		})
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", tt.name, err)
		}
		got, err := os.ReadFile(path)
		if string(got) != tt.want || (err == nil) != tt.exists {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}

func TestWriteOutputStdout(t *testing.T) {
	var out bytes.Buffer
	err := writeOutput(&env{stdout: &out}, "-", func(w io.Writer) error {
		_, err := io.WriteString(w, "x")
		return err
	})
	if err != nil || out.String() != "x" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A file that could be written in part only is removed.
func TestOutputFileFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	o := &outputFile{path: path, perm: 0o600}
	if _, err := o.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	o.w = failingWriter{}
	if _, err := o.Write([]byte("y")); err == nil {
		t.Fatal("written to a full disk")
	}
	if err := o.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a half-written file stays: %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("full") }
