// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOnlyLocal: a page whose name was made to lead to this machine gets
// nothing.
func TestOnlyLocal(t *testing.T) {
	h := onlyLocal(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") }))
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8002": 200, "127.0.0.1:8002": 200, "127.1.2.3": 200, "[::1]:8002": 200,
		"evil.example": 421, "evil.example:8002": 421, "10.0.0.1:8002": 421, "": 421, "localhost.evil.example": 421,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || (want == 200) != (w.Body.String() == "secret") {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestServeUntil ends a server while it answers: the answer is sent whole.
func TestServeUntil(t *testing.T) {
	l := listenLocal(t)
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-ctx.Done()
		io.WriteString(w, strings.Repeat("x", 1<<20))
	})}
	ended := make(chan error)
	go func() { ended <- serveUntil(ctx, srv, newLimitListener(l, 2)) }()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || len(b) != 1<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	// A listener that fails ends it as well.
	l = listenLocal(t)
	l.Close()
	if err := serveUntil(context.Background(), &http.Server{}, l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}

// TestLimitListener: a connection waits until another one ends.
func TestLimitListener(t *testing.T) {
	l := newLimitListener(listenLocal(t), 1)
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.slots) != cap(l.slots) {
		t.Error("a connection takes no slot")
	}
	first.Close()
	first.Close() // twice frees one slot
	second, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	third := make(chan error)
	go func() {
		_, err := l.Accept()
		third <- err
	}()
	l.Close()
	if err := <-third; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
}

// TestLoggedStatus: what is logged is what was answered, without what a client
// made up.
func TestLoggedStatus(t *testing.T) {
	var log strings.Builder
	h := logged(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		http.Error(w, "no", http.StatusTeapot)
	}), &log)
	r := httptest.NewRequest("GET", "/x", nil)
	r.URL.Path = "/\x1b[31m"
	h.ServeHTTP(httptest.NewRecorder(), r)
	if got := log.String(); !strings.Contains(got, `GET /\x1b[31m: 418, 3 B`) {
		t.Errorf("%q", got)
	}
}
