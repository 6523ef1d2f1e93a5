// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// interruptGrace is how long a command may take to end before it is said that it is
// waited for.
const interruptGrace = time.Second

// commandOwner is the recorder, as far as its command goes.
type commandOwner interface {
	CommandRuns() bool
	KillCommand()
}

// watchSignals kills a command that outlives the first signal, which ends the
// recording, at the second one; the third kills gantry. The caller calls stop
// when the recording has ended.
func watchSignals(ctx context.Context, r commandOwner, say *recordReport) (stop func()) {
	signals := make(chan os.Signal, 2)
	ended := ctx.Err() != nil // not later: the same signal would count twice
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	quit, done := make(chan struct{}), make(chan struct{})
	w := &signalWatch{signals: signals, quit: quit, owner: r, say: say, ended: ended}
	go func() {
		defer close(done)
		defer signal.Stop(signals)
		w.run()
	}()
	return func() {
		close(quit)
		<-done
	}
}

type signalWatch struct {
	signals <-chan os.Signal
	quit    <-chan struct{}
	owner   commandOwner
	say     *recordReport
	ended   bool // the first signal came before the watch
}

func (w *signalWatch) run() {
	if !w.ended {
		select {
		case <-w.quit:
			return
		case <-w.signals:
		}
	}
	timer := time.NewTimer(interruptGrace)
	defer timer.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-timer.C:
			if w.owner.CommandRuns() {
				w.say.clear()
				w.say.note("waiting for the command to end; Ctrl-C again kills it")
			}
		case <-w.signals:
			w.owner.KillCommand()
			return
		}
	}
}
