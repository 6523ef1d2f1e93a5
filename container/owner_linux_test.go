// SPDX-License-Identifier: Apache-2.0

//go:build linux

package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestStateIsItsFilesOwnersWord: a user's state in a directory of root, such as
// /tmp, is not root's word, and a state directory is not read through a link.
func TestStateIsItsFilesOwnersWord(t *testing.T) {
	testutil.Require(t, testutil.Root)
	dir := t.TempDir()
	state := filepath.Join(dir, "state/id/state.json")
	if err := os.MkdirAll(filepath.Dir(state), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, []byte(`{"init_process_pid":7}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{0, 1000} {
		if err := os.Chown(state, uid, 0); err != nil {
			t.Fatal(err)
		}
		list, err := OCIState{Dir: filepath.Join(dir, "state")}.Containers(t.Context())
		if err != nil || len(list) != 1 || list[0].Owner != uint32(uid) {
			t.Errorf("file of %d: %+v, %v", uid, list, err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("state", link); err != nil {
		t.Fatal(err)
	}
	if list, err := (OCIState{Dir: link}).Containers(t.Context()); err == nil || len(list) != 0 {
		t.Errorf("through a link: %+v, %v", list, err)
	}
}
