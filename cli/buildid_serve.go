// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/buildid/debuginfod"
	"github.com/gantry-tools/gantry/internal/hint"
)

// defaultListen is elfutils' port, for this machine only.
const defaultListen = "127.0.0.1:8002"

// Limits of the server. A client that is slow to ask is cut off; one that is
// slow to take is the handler's.
const (
	serveHeaderTimeout = 5 * time.Second
	serveIdleTimeout   = time.Minute
	serveHeaderBytes   = 16 << 10
	serveConnections   = 256
	serveShutdown      = 5 * time.Second
)

// serveFlags are the flags of gantry buildid serve.
type serveFlags struct {
	storeFlags
	listen     string
	containers bool
	verbose    bool
}

func newBuildidServeCmd(e *env) *cobra.Command {
	f := new(serveFlags)
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "answer debuginfod clients (gdb, perf, ...) from the store",
		Long: `Be a debuginfod server for what is in the store: binaries, separate symbols,
sections and sources by build-id. Nothing else can be reached. There is no
authentication: who can connect can read all binaries that were kept, so the
default is this machine only.

Files that came from containers are answered with --containers only, and where
the store has no other: a container can claim any build-id, that of a binary of
the host as well, and clients believe it. The answer's header X-GANTRY-FROM says
"container" then.

SIGINT and SIGTERM end it; what is being sent gets five seconds.`,
		Example: `  gantry buildid serve
  DEBUGINFOD_URLS=http://127.0.0.1:8002 gdb -p 4711
  gantry buildid serve --listen 10.0.0.5:8002`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(e, cmd.Context()) },
	}
	f.register(cmd, "")
	cmd.Flags().StringVar(&f.listen, "listen", defaultListen, "`ADDRESS` and port to listen on; port 0 is any free one")
	cmd.Flags().BoolVar(&f.containers, "containers", false,
		"answer with files of containers as well, by the build-ids that they claim")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print each request to stderr")
	return withSignals(cmd)
}

func (f *serveFlags) run(e *env, ctx context.Context) error {
	store, err := buildid.OpenStore(cmp.Or(f.dir, defaultStore()))
	if err != nil {
		return hint.Wrap(err, "'gantry record' and 'gantry buildid add' make a store; --buildid-dir names another")
	}
	defer store.Close()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return hint.Wrap(fmt.Errorf("--listen: %w", err),
			"choose a free port of this machine, such as --listen 127.0.0.1:0")
	}
	local := l.Addr().(*net.TCPAddr).IP.IsLoopback()
	answers := debuginfod.NewHandler(store)
	answers.Containers = f.containers
	handler := http.Handler(answers)
	if local {
		handler = onlyLocal(handler)
	} else {
		fmt.Fprintln(e.stderr, "gantry: everybody who can connect can read all binaries of the store")
	}
	if f.verbose {
		handler = logged(handler, e.stderr)
	}
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: serveHeaderTimeout,
		ReadTimeout:       serveHeaderTimeout,
		IdleTimeout:       serveIdleTimeout,
		MaxHeaderBytes:    serveHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // what clients do wrong
	}
	fmt.Fprintf(e.stderr, "gantry: serving at http://%s\n", l.Addr())
	return serveUntil(ctx, srv, newLimitListener(l, serveConnections))
}

// serveUntil serves until ctx ends, then lets requests end for a while.
func serveUntil(ctx context.Context, srv *http.Server, l net.Listener) error {
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), serveShutdown)
		defer cancel()
		err := srv.Shutdown(grace)
		if err != nil {
			err = srv.Close() // what is still being sent is cut off
		}
		ended <- err
	})
	err := srv.Serve(l)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// onlyLocal refuses requests that a page in a browser of this machine makes, by
// a name that its owner lets lead here.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this server is for localhost only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// logged prints a line for each request.
func logged(next http.Handler, stderr io.Writer) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(s, r)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(stderr, "gantry: %s %s %s: %d, %s\n", r.RemoteAddr, r.Method, profile.Printable(r.URL.Path),
			s.status, byteSize(s.bytes))
	})
}

// statusWriter remembers what was answered.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets the handler set deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limitListener accepts so many connections at once; others wait in the kernel.
type limitListener struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func newLimitListener(l net.Listener, most int) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, most), done: make(chan struct{})}
}

// Accept waits for a free slot, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitConn{Conn: c, free: func() { <-l.slots }}, nil
}

// Close ends a waiting Accept as well.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// limitConn frees its slot when it is closed.
type limitConn struct {
	net.Conn
	once sync.Once
	free func()
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
