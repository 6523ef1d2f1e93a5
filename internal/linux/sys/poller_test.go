// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func linesWith(text, word string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func newPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// pipe returns the two ends of a pipe.
func pipe(t *testing.T) (r, w *FD) {
	t.Helper()
	var raw [2]int
	if err := syscall.Pipe2(raw[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = own(raw[0]), own(raw[1])
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// eachPoller runs a test with both ways to wait.
func eachPoller(t *testing.T, test func(t *testing.T, p *Poller)) {
	for name, direct := range map[string]bool{"parked": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			testutil.CheckLeaks(t)
			p := newPoller(t)
			if direct {
				p.Blocking()
			}
			test(t, p)
		})
	}
}

func TestPollerReportsWhatIsReady(t *testing.T) { eachPoller(t, testPollerReportsWhatIsReady) }

func testPollerReportsWhatIsReady(t *testing.T, p *Poller) {
	r1, w1 := pipe(t)
	r2, w2 := pipe(t)
	for id, fd := range []*FD{r1, r2} {
		if err := p.Add(fd, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Wait(0, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("nothing ready: %v, want deadline exceeded", err)
	}
	if _, err := w2.Writev([][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	ready, err := p.Wait(-1, nil)
	if err != nil || len(ready) != 1 || ready[0] != (Ready{ID: 1}) {
		t.Fatalf("got %v, %v, want descriptor 1", ready, err)
	}
	if err := p.Remove(r2); err != nil {
		t.Fatal(err)
	}
	w1.Close()
	ready, err = p.Wait(-1, ready)
	if err != nil || len(ready) != 1 || ready[0] != (Ready{ID: 0, Hangup: true}) {
		t.Fatalf("got %v, %v, want hang-up of 0", ready, err)
	}
}

func TestPollerWake(t *testing.T) { eachPoller(t, testPollerWake) }

func testPollerWake(t *testing.T, p *Poller) {
	if err := p.Wake(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wake(); err != nil {
		t.Fatal(err)
	}
	// Both wake-ups count once, also if they came before Wait.
	if ready, err := p.Wait(-1, nil); err != nil || len(ready) != 0 {
		t.Fatalf("got %v, %v after Wake", ready, err)
	}
	if _, err := p.Wait(0, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("second Wait: %v, want deadline exceeded", err)
	}
}

func TestPollerCloseInterruptsWait(t *testing.T) {
	testutil.CheckLeaks(t)
	p := newPoller(t)
	var wg sync.WaitGroup
	done := make(chan error, 1)
	wg.Go(func() {
		_, err := p.Wait(-1, nil)
		done <- err
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait during Close: %v, want closed", err)
	}
	wg.Wait()
	for name, err := range map[string]error{
		"Close":   p.Close(),
		"Wait":    second(p.Wait(-1, nil)),
		"Add":     p.Add(nil, 1),
		"Wake":    p.Wake(),
		"Suspend": p.Suspend(true),
	} {
		if name == "Close" && err != nil || name != "Close" && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func second(_ []Ready, err error) error { return err }

func TestPollerDeadline(t *testing.T) { eachPoller(t, testPollerDeadline) }

func testPollerDeadline(t *testing.T, p *Poller) {
	start := time.Now()
	if _, err := p.Wait(20*time.Millisecond, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want deadline exceeded", err)
	}
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Errorf("Wait returned after %v, before its timeout", d)
	}
}

// What happens to a suspended descriptor neither wakes nor is forgotten.
func TestPollerSuspend(t *testing.T) { eachPoller(t, testPollerSuspend) }

func testPollerSuspend(t *testing.T, p *Poller) {
	r, w := pipe(t)
	if err := p.AddSuspendable(r, 7); err != nil {
		t.Fatal(err)
	}
	for range 2 { // muting twice does nothing
		if err := p.Suspend(true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Writev([][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	if ready, err := p.Wait(10*time.Millisecond, nil); !errors.Is(err, os.ErrDeadlineExceeded) || len(ready) != 0 {
		t.Fatalf("suspended: %v, %v, want deadline exceeded", ready, err)
	}
	if err := p.Suspend(false); err != nil {
		t.Fatal(err)
	}
	if ready, err := p.Wait(-1, nil); err != nil || len(ready) != 1 || ready[0] != (Ready{ID: 7}) {
		t.Fatalf("not suspended: %v, %v, want descriptor 7", ready, err)
	}
	if err := p.Remove(r); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(0, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("removed: %v, want deadline exceeded", err)
	}
}

// A wait that is over by its timeout leaves nothing behind for the next.
func TestPollerTimerIsSetAgain(t *testing.T) {
	p := newPoller(t)
	r, w := pipe(t)
	if err := p.Add(r, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(time.Millisecond, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := w.Writev([][]byte{{1}}); err != nil {
			t.Error(err)
		}
	})
	if ready, err := p.Wait(-1, nil); err != nil || len(ready) != 1 {
		t.Errorf("got %v, %v, want the descriptor and not the old timer", ready, err)
	}
	wg.Wait()
}
