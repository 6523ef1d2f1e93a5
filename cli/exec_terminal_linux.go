// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// A programTerminal is the terminal of a program in a container: not the user's own,
// into which the program could type commands for the host.
type programTerminal struct {
	user    *os.File // the user's
	ours    *os.File // the other side of the program's
	theirs  *os.File
	restore *term.State
	shown   chan struct{} // closed when all was shown
	resize  chan os.Signal
}

// openTerminal makes a terminal if the user has one on both sides, else it is nil.
func openTerminal(stdin, stdout *os.File) (*programTerminal, error) {
	if stdin == nil || stdout == nil || !term.IsTerminal(int(stdin.Fd())) || !term.IsTerminal(int(stdout.Fd())) {
		return nil, nil
	}
	ours, theirs, err := sys.Terminal()
	if err != nil {
		return nil, err
	}
	t := &programTerminal{
		user: stdin, ours: ours.File("terminal"), theirs: theirs.File("terminal"),
		shown: make(chan struct{}), resize: make(chan os.Signal, 1),
	}
	return t, nil
}

// start shows what the program writes and gives it what is typed.
func (t *programTerminal) start(stdout io.Writer) error {
	if t == nil {
		return nil
	}
	t.theirs.Close() // the program has it
	_ = sys.CopyTerminalSize(int(t.user.Fd()), int(t.ours.Fd()))
	var err error
	if t.restore, err = term.MakeRaw(int(t.user.Fd())); err != nil {
		return err
	}
	signal.Notify(t.resize, syscall.SIGWINCH)
	go func() {
		for range t.resize {
			_ = sys.CopyTerminalSize(int(t.user.Fd()), int(t.ours.Fd()))
		}
	}()
	// What is typed after the program's end is read too, like that of any program
	// that reads ahead: nothing ends a read of a terminal.
	go func() { _, _ = io.Copy(t.ours, t.user) }()
	go func() {
		defer close(t.shown)
		// EIO is the end: all programs on the terminal are gone.
		_, _ = io.Copy(stdout, t.ours)
	}()
	return nil
}

// lastWords is how long a program that ended may still be heard: another one that it
// left behind may have the terminal for ever.
const lastWords = time.Second

// end waits until all was shown, and gives the user's terminal back.
func (t *programTerminal) end() error {
	if t == nil {
		return nil
	}
	t.theirs.Close()
	if t.restore == nil {
		return t.ours.Close()
	}
	select {
	case <-t.shown:
	case <-time.After(lastWords):
	}
	signal.Stop(t.resize)
	close(t.resize)
	return errors.Join(term.Restore(int(t.user.Fd()), t.restore), t.ours.Close())
}
