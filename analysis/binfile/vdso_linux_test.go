// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestVDSO(t *testing.T) {
	id := VDSO{}.ID()
	if id.IsZero() {
		testutil.NotHere(t, "this kernel gives processes no vdso")
	}
	r := symbol.NewResolver(VDSO{})
	o, err := r.Object(symbol.Ref{Path: "[vdso]", BuildID: id})
	if err != nil {
		t.Fatal(err)
	}
	if o.Len() == 0 || o.Place != "process" {
		t.Errorf("%d symbols from %q", o.Len(), o.Place)
	}
	other, err := buildid.New([]byte(strings.Repeat("x", 20)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Object(symbol.Ref{Path: "[vdso]", BuildID: other}); !errors.Is(err, symbol.ErrMismatch) {
		t.Errorf("the vdso of another kernel: %v", err)
	}
	for _, ref := range []symbol.Ref{{Path: "[vdso]"}, {Path: "[vdso32]", BuildID: id}, {Path: "/bin/sh", BuildID: id}} {
		if _, _, err := (VDSO{}).Open(ref); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: %v", ref, err)
		}
	}
}
