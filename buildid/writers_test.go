// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// The test program runs itself as a writer to the store that this variable
// names; the next says what it does.
const (
	writerStore = "GANTRY_TEST_STORE"
	writerRole  = "GANTRY_TEST_ROLE"
)

const (
	writerFiles  = 20
	writerRounds = 10
)

func writerID(i int) ID { return ID{raw: fmt.Sprintf("file%02d", i)} }

// TestWriterProcess is what the other processes run.
func TestWriterProcess(t *testing.T) {
	dir := os.Getenv(writerStore)
	if dir == "" {
		return // not one of them
	}
	s, err := CreateStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	switch os.Getenv(writerRole) {
	case "add":
		for n := range writerRounds * writerFiles {
			id := writerID(n % writerFiles)
			got, err := s.Add(bytes.NewReader(append(testELF(id.Bytes()), make([]byte, 1<<16)...)), Source{Path: fmt.Sprintf("/w%d", n%3)})
			if err != nil || got != id {
				t.Errorf("add %v: %v, %v", id, got, err)
			}
		}
	case "prune":
		for range writerRounds {
			if _, err := s.Prune(Limits{MaxSize: 1}); err != nil {
				t.Error("prune:", err)
			}
		}
	case "hang":
		s.Add(io.MultiReader(strings.NewReader("half a file"), sayAndWait{}), Source{Path: "/half"})
	}
}

// sayAndWait is a file whose end never comes.
type sayAndWait struct{}

func (sayAndWait) Read([]byte) (int, error) {
	fmt.Println("half written")
	_, err := io.Copy(io.Discard, os.Stdin)
	return 0, err
}

func writer(dir, role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestWriterProcess$")
	cmd.Env = append(os.Environ(), writerStore+"="+dir, writerRole+"="+role)
	return cmd
}

// TestStoreProcesses lets several processes add the same files while one prunes
// all the time. Nobody fails, and what is there in the end is whole.
func TestStoreProcesses(t *testing.T) {
	s, dir := newStore(t)
	var running []*exec.Cmd
	var outs []*bytes.Buffer
	for _, role := range []string{"add", "add", "add", "prune"} {
		cmd, out := writer(dir, role), new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running, outs = append(running, cmd), append(outs, out)
	}
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, outs[i])
		}
	}
	if _, bad := s.Verify(mustList(t, s), false); len(bad) != 0 {
		t.Errorf("bad files: %v", bad)
	}
	for i := range writerFiles {
		if _, err := s.Add(bytes.NewReader(testELF(writerID(i).Bytes())), Source{Path: "/last"}); err != nil || !s.Has(writerID(i)) {
			t.Errorf("the store is broken: %v", err)
		}
	}
	noLeftovers(t, dir)
}

// TestKilledWriter kills a process in the middle of a file. What it wrote is
// removed by the next writer, and not before it is dead.
func TestKilledWriter(t *testing.T) {
	s, dir := newStore(t)
	cmd := testutil.StartReady(t, writer(dir, "hang"))
	if cmd.First != "half written\n" {
		t.Fatal(cmd.First)
	}
	temps := func() int {
		names, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	late := time.Now().Add(48 * time.Hour)
	if n := s.removeTemps(late); n != 0 || temps() != 1 {
		t.Errorf("the file of a living writer: %d removed, %d left", n, temps())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.End() // says that it was killed
	if n := s.removeTemps(time.Now()); n != 0 || temps() != 1 {
		t.Errorf("a new file without a lock: %d removed, %d left", n, temps())
	}
	names, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	setUsed(t, names[0], time.Hour)
	again, err := CreateStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	noLeftovers(t, dir)
}
