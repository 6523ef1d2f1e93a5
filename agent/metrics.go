// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gantry-tools/gantry/internal/hint"
)

// stats are what the agent counts beside its brokers.
type stats struct {
	rejected atomic.Uint64 // messages of runtimes
	unknown  atomic.Uint64 // processes in no container
}

// writeMetrics writes the counters as Prometheus reads them.
func (w *worker) writeMetrics(out io.Writer) error {
	var granted, refused uint64
	for _, b := range w.rules.all() {
		s := b.Stats()
		granted += s.Granted
		refused += s.Refused
	}
	w.mu.Lock()
	listeners, conns := len(w.listeners), len(w.conns)
	w.mu.Unlock()
	_, err := fmt.Fprintf(out, `# HELP gantry_agent_events_total Events that containers asked for, by decision.
# TYPE gantry_agent_events_total counter
gantry_agent_events_total{decision="granted"} %d
gantry_agent_events_total{decision="refused"} %d
# HELP gantry_agent_unknown_total Processes that asked and are in no known container.
# TYPE gantry_agent_unknown_total counter
gantry_agent_unknown_total %d
# HELP gantry_agent_rejected_total Messages of container runtimes that could not be used.
# TYPE gantry_agent_rejected_total counter
gantry_agent_rejected_total %d
# HELP gantry_agent_containers Containers that are served.
# TYPE gantry_agent_containers gauge
gantry_agent_containers %d
# HELP gantry_agent_listeners Seccomp filters that are served.
# TYPE gantry_agent_listeners gauge
gantry_agent_listeners %d
# HELP gantry_agent_connections Connections of containers and runtimes.
# TYPE gantry_agent_connections gauge
gantry_agent_connections %d
`, granted, refused, w.stats.unknown.Load(), w.stats.rejected.Load(), w.scopes.count(), listeners, conns)
	return err
}

// servePage listens for Prometheus. It returns what ends the server, and what runs it.
func (w *worker) servePage(addr string) (end, run func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, nil, hint.Wrap(fmt.Errorf("metrics: %w", err), "name a free address: --metrics 127.0.0.1:9464")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_ = w.writeMetrics(rw) // the reader may have gone
	})
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "ok\n")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: patience, IdleTimeout: time.Minute}
	run = func() error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	return s.Close, run, nil
}
