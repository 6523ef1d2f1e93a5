// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// A kernel that lacks one feature must not cost the others. This kernel lacks
// none, so the one that is refused is an impossible pair of weights.
func TestLadderDropsOnlyWhatIsRefused(t *testing.T) {
	testutil.CheckLeaks(t)
	a := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy,
		SampleType: perf.SampleWeight | perf.SampleWeightStruct | perf.SampleCgroup,
		ReadFormat: perf.FormatLost,
		Flags:      perf.AttrMmap | perf.AttrMmap2 | perf.AttrBuildID | perf.AttrCgroup | perf.AttrExcludeKernel | perf.AttrExcludeHV,
	}
	ev := opened(t, a, ownThread(t), nil)
	if !slices.Equal(ev.Dropped, []Feature{FeatureWeight}) {
		t.Errorf("dropped %v, want the weight struct only", ev.Dropped)
	}
	want := a
	want.SampleType &^= perf.SampleWeightStruct
	if ev.Attr.SampleType != want.SampleType || ev.Attr.Flags != a.Flags || ev.Attr.ReadFormat != a.ReadFormat {
		t.Errorf("attr is %+v, want %+v", ev.Attr, want)
	}
}

func TestLadderExact(t *testing.T) {
	a := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy, SampleType: perf.SampleWeight | perf.SampleWeightStruct,
		Flags: perf.AttrExcludeKernel | perf.AttrExcludeHV,
	}
	if ev, err := Open(&a, Target{CPU: Any, Flags: Exact}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
		ev.Close()
	}
}

// What no feature is to blame for is reported as it was, and nothing is
// dropped in vain.
func TestLadderGivesUp(t *testing.T) {
	a := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy, Flags: perf.AttrBuildID | perf.AttrMmap2 | perf.AttrExcludeKernel | perf.AttrExcludeHV,
		SampleType: 1 << 40,
	}
	before := a
	if ev, err := Open(&a, Target{CPU: Any}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
		ev.Close()
	}
	if a.Flags != before.Flags {
		t.Errorf("the caller's attr was changed to %+v", a)
	}
}

func TestFeatureRemove(t *testing.T) {
	full := perf.Attr{
		SampleType: perf.SampleWeightStruct | perf.SampleCgroup | perf.SampleCodePageSize, ReadFormat: perf.FormatLost,
		Flags: perf.AttrBuildID | perf.AttrTextPoke | perf.AttrCgroup | perf.AttrBPFEvent | perf.AttrKsymbol |
			perf.AttrNamespaces | perf.AttrContextSwitch, SampleMaxStack: 5,
	}
	for f := range numFeatures {
		a := full
		if !f.remove(&a) {
			t.Errorf("%v was not found", f)
		}
		if f.remove(&a) {
			t.Errorf("%v was removed twice", f)
		}
		if f.String() == "" {
			t.Errorf("feature %d has no name", f)
		}
	}
}
