// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/gantry-tools/gantry/analysis/binfile"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/buildid/debuginfod"
	"github.com/gantry-tools/gantry/internal/hint"
)

// debuginfodEnv is --debuginfod without a value.
const debuginfodEnv = "$DEBUGINFOD_URLS"

// newDebuginfod makes a client of the servers that --debuginfod names.
func newDebuginfod(e *env, urls string) (*debuginfod.Client, error) {
	o, err := debuginfod.FromEnv(os.Getenv)
	if err != nil {
		return nil, hint.Wrap(err, "correct the variable, or unset it")
	}
	if urls != debuginfodEnv {
		o.URLs = strings.FieldsFunc(urls, func(r rune) bool { return r == ' ' || r == ',' })
	}
	if len(o.URLs) == 0 {
		return nil, hint.Wrap(fmt.Errorf("--debuginfod: no server is named"),
			"give --debuginfod=URL, or set DEBUGINFOD_URLS")
	}
	if f, ok := e.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		o.Progress = (&progressLine{w: f}).tell
	}
	c, err := debuginfod.New(o)
	if err != nil {
		return nil, named("--debuginfod", err,
			"give http:// or https:// URLs; DEBUGINFOD_CACHE_PATH is a directory you may write to")
	}
	return c, nil
}

// addDebuginfod makes servers the last place that binaries come from.
func (s *symbolSources) addDebuginfod(e *env, urls string) error {
	if urls == "" {
		return nil
	}
	c, err := newDebuginfod(e, urls)
	if err != nil {
		return err
	}
	s.remote = c
	s.closers = append(s.closers, c)
	s.openers = append(s.openers, &binfile.Debuginfod{Client: c})
	return nil
}

// explain says what went wrong with the places that names came from, and what
// was got from servers.
func (s *symbolSources) explain(stderr io.Writer) {
	if s.store != nil && s.store.Dropped() > 0 {
		fmt.Fprintf(stderr, "gantry: %s of the build-id store did not have the id of their place and were dropped\n",
			plural(int(s.store.Dropped()), "file", "files"))
	}
	if s.remote == nil {
		return
	}
	n := s.remote.Stats()
	fmt.Fprintf(stderr, "gantry: debuginfod: %s downloaded (%s), %d from the cache, %d not there",
		plural(n.Downloaded, "file", "files"), byteSize(n.Bytes), n.Cached, n.Missing)
	if n.Refused > 0 {
		fmt.Fprintf(stderr, ", %d refused", n.Refused)
	}
	if n.Failed > 0 {
		fmt.Fprintf(stderr, ", %d failed (the first: %s)", n.Failed, profile.Printable(s.remote.Failure().Error()))
	}
	fmt.Fprintln(stderr)
	dead := s.remote.Dead()
	var servers []string
	for server := range dead {
		servers = append(servers, server)
	}
	slices.Sort(servers)
	for _, server := range servers {
		fmt.Fprintf(stderr, "gantry: debuginfod: gave up %s: %s\n", debuginfod.Redacted(server),
			profile.Printable(dead[server].Error()))
	}
}

// progressLine is a line on a terminal that tells how far a download has come.
type progressLine struct {
	w    io.Writer
	last time.Time
	on   bool
}

// progressEvery is how often the line changes.
const progressEvery = 200 * time.Millisecond

func (p *progressLine) tell(server string, done, total int64) {
	now := time.Now()
	switch {
	case done == total:
		if p.on {
			fmt.Fprint(p.w, "\r\x1b[K")
		}
		p.on = false
	case now.Sub(p.last) < progressEvery:
	default:
		of := ""
		if total > 0 {
			of = " of " + byteSize(total)
		}
		fmt.Fprintf(p.w, "\r\x1b[Kdebuginfod: %s%s from %s", byteSize(done), of, profile.Printable(server))
		p.last, p.on = now, true
	}
}
