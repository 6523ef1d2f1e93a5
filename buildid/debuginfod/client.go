// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/buildid"
)

// Kind is what a client asks for.
type Kind string

const (
	Executable Kind = "executable" // the binary itself
	Debuginfo  Kind = "debuginfo"  // its separate symbols, or itself if it has some
)

// Defaults of Options. elfutils waits for 90 seconds and takes any size.
const (
	DefaultTimeout = 5 * time.Second
	DefaultMaxTime = 10 * time.Minute
	DefaultMaxSize = 1 << 30
)

// ErrTooLarge is a file that exceeds MaxSize.
var ErrTooLarge = buildid.ErrTooLarge

// Options are those of a Client. Only URLs must be given.
type Options struct {
	// URLs of the servers, asked one after the other. http and https.
	URLs []string
	// Cache is the directory of the cache, which is made if need be; ""
	// means DefaultCache.
	Cache string
	// Timeout is how long a server may take for the first byte, and for each
	// 100 KB after it; default DefaultTimeout.
	Timeout time.Duration
	// MaxTime and MaxSize bound one file, in time and bytes; 0 are the
	// defaults.
	MaxTime time.Duration
	MaxSize int64
	// Header is sent with each request.
	Header http.Header
	// Progress, if not nil, is called now and then with how far a file has come;
	// total is 0 if the server does not say. done == total ends it.
	Progress func(url string, done, total int64)
}

// Stats count what a Client did.
type Stats struct {
	Cached     int   `json:"cached"`     // files found in the cache
	Downloaded int   `json:"downloaded"` // files got from a server
	Bytes      int64 `json:"bytes"`      // their size
	Missing    int   `json:"missing"`    // files that no server has
	Refused    int   `json:"refused"`    // answers that were too large or another file
	Failed     int   `json:"failed"`     // answers that were an error, broke off, or could not be kept
	Dead       int   `json:"dead"`       // servers that do not answer, and are not asked any more
}

// Client gets files by their build-id. It may be used by several goroutines.
type Client struct {
	o     Options
	http  *http.Client
	cache *cache

	mu    sync.Mutex
	dead  map[string]error
	stats Stats
	first error // of those counted as failed
}

// New makes a Client. The caller closes it.
func New(o Options) (*Client, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxTime = cmp.Or(o.MaxTime, DefaultMaxTime)
	o.MaxSize = cmp.Or(o.MaxSize, DefaultMaxSize)
	for _, text := range o.URLs {
		u, err := url.Parse(text)
		if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			err = errors.New("not an http or https URL")
		}
		if err != nil {
			return nil, fmt.Errorf("debuginfod server %q: %w", text, err)
		}
	}
	dir := o.Cache
	if dir == "" {
		var err error
		if dir, err = DefaultCache(os.Getenv); err != nil {
			return nil, err
		}
	}
	c, err := openCache(dir)
	if err != nil {
		return nil, err
	}
	client := &Client{o: o, cache: c, dead: make(map[string]error)}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = o.Timeout
	transport.DisableCompression = true // a size is what is sent
	transport.MaxResponseHeaderBytes = 64 << 10
	client.http = &http.Client{Transport: transport, CheckRedirect: client.checkRedirect}
	return client, nil
}

// checkRedirect follows a server to another place of the web only, and tells no
// other host what the headers are to tell the server.
func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fmt.Errorf("redirected to %s after %d redirections", req.URL.Redacted(), len(via)-1)
	}
	if req.URL.Host != via[0].URL.Host {
		for name := range c.o.Header {
			req.Header.Del(name)
		}
	}
	return nil
}

// Close closes the cache and idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return c.cache.Close()
}

// Stats counts what was done so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Dead = len(c.dead)
	return s
}

// Dead lists the servers that did not answer, with the reason.
func (c *Client) Dead() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]error, len(c.dead))
	for u, err := range c.dead {
		out[u] = err
	}
	return out
}

// Failure is the first of the errors that Stats counts as failed, nil if there is
// none.
func (c *Client) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// fail counts an answer of a server, and returns why it is of no use.
func (c *Client) fail(server string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.Failed++; c.first == nil {
		c.first = fmt.Errorf("%s: %w", Redacted(server), err)
	}
	return err
}

func (c *Client) count(add func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.stats)
}

// Find opens a file out of the cache, or gets it from the first server that has
// it; the caller closes it. The error is fs.ErrNotExist if all servers say that
// they do not have it, now or ten minutes ago. A file with another id is
// refused. Symbols of a binary that is known by a hash of its content only are
// not asked for: nothing could tell whose they are.
func (c *Client) Find(ctx context.Context, id buildid.ID, kind Kind) (*os.File, int64, error) {
	f, size, err := c.find(ctx, id, kind)
	if err != nil {
		return nil, 0, fmt.Errorf("debuginfod: %s of %s: %w", kind, id, err)
	}
	return f, size, nil
}

func (c *Client) find(ctx context.Context, id buildid.ID, kind Kind) (*os.File, int64, error) {
	if id.IsZero() || kind == Debuginfo && id.Kind() == buildid.KindContent {
		return nil, 0, fs.ErrNotExist
	}
	f, size, err := c.cache.open(id, kind)
	if err == nil {
		c.count(func(s *Stats) { s.Cached++ })
		return f, size, nil
	}
	if errors.Is(err, errKnownMissing) {
		return nil, 0, fs.ErrNotExist
	}
	failed := error(nil)
	for _, server := range c.o.URLs {
		if c.isDead(server) {
			if failed == nil {
				failed = errDead
			}
			continue
		}
		err := c.fetch(ctx, server, id, kind)
		if err == nil {
			return c.cache.open(id, kind)
		}
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed = fmt.Errorf("%s: %w", Redacted(server), err)
		}
	}
	if failed != nil {
		return nil, 0, failed
	}
	c.count(func(s *Stats) { s.Missing++ })
	c.cache.missing(id, kind)
	return nil, 0, fs.ErrNotExist
}

// Redacted is a URL without its password.
func Redacted(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	return u.Redacted()
}

// Why a server is given up.
var (
	errDead = errors.New("the server does not answer")
	errSlow = errors.New("too slow")
	errLong = errors.New("the file takes too long")
)

func (c *Client) isDead(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead[server] != nil
}

// fetch gets a file from one server into the cache. A server that cannot be
// reached or is too slow is not asked again.
func (c *Client) fetch(ctx context.Context, server string, id buildid.ID, kind Kind) error {
	ctx, stop := context.WithTimeoutCause(ctx, c.o.MaxTime, errLong)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(c.o.Timeout, func() { cancel(errSlow) })
	defer slow.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(server, "/")+"/buildid/"+id.String()+"/"+string(kind), nil)
	if err != nil {
		return err
	}
	req.Header = c.o.Header.Clone()
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	req.Header.Set("User-Agent", "gantry (debuginfod client)")
	resp, err := c.http.Do(req)
	if err != nil {
		return c.bury(ctx, server, err, true)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fs.ErrNotExist
	case resp.StatusCode != http.StatusOK:
		return c.fail(server, fmt.Errorf("the server says %q", resp.Status))
	case resp.ContentLength > c.o.MaxSize:
		c.count(func(s *Stats) { s.Refused++ })
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, resp.ContentLength)
	}
	body := &download{r: resp.Body, slow: slow, timeout: c.o.Timeout, total: max(resp.ContentLength, 0),
		server: Redacted(server), tell: c.o.Progress}
	size, err := c.cache.add(body, id, kind, c.o.MaxSize)
	body.end()
	var local *fs.PathError
	switch {
	case err == nil:
		c.count(func(s *Stats) { s.Downloaded++; s.Bytes += size })
	case body.err != nil:
		return c.bury(ctx, server, body.err, false)
	case errors.As(err, &local):
		return c.fail(server, err)
	default:
		c.count(func(s *Stats) { s.Refused++ })
	}
	return err
}

// bury remembers that a server does not answer: each of a recording's hundreds
// of files would wait for it. One that answered and then broke off is asked for
// the next file.
func (c *Client) bury(ctx context.Context, server string, err error, quiet bool) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL, which may have a password
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errSlow):
		err = fmt.Errorf("%w: less than %d bytes in %v", errSlow, progressStep, c.o.Timeout)
	case errors.Is(cause, errLong):
		return c.fail(server, errLong)
	case cause != nil: // the caller's
		return cause
	case !quiet:
		return c.fail(server, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead[server] = err
	return err
}

// download is the body of an answer, which must not come too slowly.
type download struct {
	r       io.Reader
	slow    *time.Timer
	timeout time.Duration
	server  string
	tell    func(url string, done, total int64)

	done, total, mark int64
	err               error // of reading
}

// progressStep is how much must come in the time that a server has.
const progressStep = 100_000

func (d *download) Read(b []byte) (int, error) {
	n, err := d.r.Read(b)
	d.done += int64(n)
	if d.done-d.mark >= progressStep {
		d.mark = d.done
		d.slow.Reset(d.timeout)
		if d.tell != nil {
			d.tell(d.server, d.done, d.total)
		}
	}
	if err != nil && err != io.EOF {
		d.err = err
	}
	return n, err
}

// end tells that no more will come.
func (d *download) end() {
	if d.tell != nil {
		d.tell(d.server, d.done, d.done)
	}
}
