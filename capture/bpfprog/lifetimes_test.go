// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// Programs that live some microseconds are known as those that live longer: 300
// of 300, each with its functions and lines. Zero is closed at once.
func TestLifetimes(t *testing.T) {
	testutil.Require(t, testutil.Root)
	o := WatchOptions{Table: NewProgramTable()}
	names := make(chan string, 4096) // more than a test and its neighbours load
	o.Load = func(id uint32) {
		p, _ := o.Table.Program(id)
		select {
		case names <- p.Name:
		default:
		}
	}
	stop := watch(t, o)
	var loaded []string
	for _, lifetime := range []time.Duration{0, 15 * time.Microsecond, 50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		loaded = append(loaded, loadBrief(t, lifetime, names)...)
	}
	programs := stop()
	byName := make(map[string]*Program)
	programs.Programs(func(p *Program) { byName[p.Name] = p })
	for _, name := range loaded {
		p := byName[name]
		if p == nil {
			t.Errorf("nothing is known of program %s", name)
			continue
		}
		if p.Details == nil || p.Missed != "" || p.Unloaded < p.Loaded {
			t.Errorf("program %s: %+v", name, p.BPFProgramLife)
			continue
		}
		checkSevenAs(t, name, p.Details)
	}
	if tally := programs.Tally(); tally.Lost != 0 {
		t.Errorf("%d records lost", tally.Lost)
	}
}

// loadBrief loads 300 programs, each of which lives so long, and returns their
// names. It logs how long that was, as the loader saw it.
func loadBrief(t *testing.T, lifetime time.Duration, announcements <-chan string) (names []string) {
	t.Helper()
	// Some at a time: a reader that is kept from the CPU must not lose records.
	const each, together = 300, 100
	b, err := testprogs.NewShortLived()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	prefix := fmt.Sprintf("b%d_%s_", lifetime.Microseconds(), testutil.RandomHex(4))
	var held, gone []time.Duration
	for i := range each {
		name := fmt.Sprintf("%s%d", prefix, i)
		l, err := b.Live(name, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		if l.Held < lifetime {
			t.Fatalf("program %s was held for %v, want %v", name, l.Held, lifetime)
		}
		held, gone, names = append(held, l.Held), append(gone, l.Gone), append(names, name)
		if i%together == together-1 {
			awaitName(t, announcements, name)
		}
	}
	t.Logf("%d programs closed %v after the return of their load; min, median, max: to the call of close %v, to its return %v",
		each, lifetime, spread(held), spread(gone))
	return names
}

// spread is the least, the median and the most.
func spread(list []time.Duration) [3]time.Duration {
	slices.Sort(list)
	return [3]time.Duration{list[0], list[len(list)/2], list[len(list)-1]}
}

// awaitName waits until a load was told of.
func awaitName(t *testing.T, announcements <-chan string, want string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case name := <-announcements:
			if name == want {
				return
			}
		case <-limit:
			t.Fatalf("nothing was told of program %s", want)
		}
	}
}
