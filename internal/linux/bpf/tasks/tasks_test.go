// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"encoding/binary"
	"io"
	"os"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestTasks(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.BTF, testutil.Kernel("5.8"))
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, err := p.Tasks()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for ; len(b) >= 88; b = b[88:] {
		found = found || binary.LittleEndian.Uint32(b[24:]) == uint32(os.Getpid())
	}
	if !found || len(b) > 0 {
		t.Errorf("this process found: %v; %d bytes behind the last record", found, len(b))
	}
}
