// Package httpapi tells over HTTP how a running pipeline does: whether the process
// lives, whether it is ready, and its metrics. All of it derives from the engine's
// events.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kinetl/kinetl"
)

// Server tells what is known of one process. Its methods may be called from any
// goroutine.
type Server struct {
	registry *prometheus.Registry
	commits  *prometheus.HistogramVec

	mu        sync.Mutex
	draining  bool
	pipelines map[string]*state // by name; made by Observer
}

// New makes a server that has seen no event and listens nowhere yet.
func New() *Server {
	s := &Server{
		registry: prometheus.NewRegistry(),
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: commitSeconds.name, Help: commitSeconds.help, Buckets: commitBuckets,
		}, commitSeconds.labels),
		pipelines: map[string]*state{},
	}
	s.registry.MustRegister(collector{s}, s.commits, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Observe takes in one event of a process that runs a single pipeline, without a
// name: it is what ConsumerConfig.Observe wants. It waits for nothing but other
// calls of itself and for a scrape to copy numbers.
func (s *Server) Observe(e kinetl.Event) { s.observe("", e) }

// Observer is Observe for one pipeline of several: two may read one stream. From
// now on the process is not ready before this pipeline is.
func (s *Server) Observer(pipeline string) func(kinetl.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pipeline(pipeline)
	return func(e kinetl.Event) { s.observe(pipeline, e) }
}

func (s *Server) observe(pipeline string, e kinetl.Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Kind == kinetl.EventCommitted {
		s.commits.WithLabelValues(pipeline, e.Table).Observe(e.Took.Seconds())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pipeline(pipeline).observe(e)
}

// pipeline is a pipeline's state, new or not. The caller holds the lock.
func (s *Server) pipeline(name string) *state {
	st, ok := s.pipelines[name]
	if !ok {
		st = newState()
		s.pipelines[name] = st
	}
	return st
}

// Drain says that the process was asked to stop: from now on it is not ready.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// Handler serves GET /healthz (200 while the process lives), /readyz (200, or 503
// and a line that says why not) and /metrics (Prometheus' text format).
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.unready(time.Now())) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// unready is the reason why the process is not ready, or nothing.
func (s *Server) unready(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return "draining: committing what was read"
	case len(s.pipelines) == 0:
		return "starting: no pipeline runs yet"
	}
	for _, name := range slices.Sorted(maps.Keys(s.pipelines)) {
		if reason := s.pipelines[name].unready(now); reason != "" {
			if name != "" {
				reason = "pipeline " + name + ": " + reason
			}
			return reason
		}
	}
	return ""
}

func answer(w http.ResponseWriter, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if reason != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, reason)
		return
	}
	fmt.Fprintln(w, "ok")
}

// shutdownTime is what requests in flight get when the server stops.
const shutdownTime = 2 * time.Second

// Serve listens on addr (host:port; port 0 takes a free one) and serves Handler
// until ctx ends. It returns the address it is bound to; done gives one value when
// the server has stopped: nil after ctx ended, else why it failed. The caller waits
// for it. Give Serve a context that outlives the drain, so that a process that
// drains can be asked.
func (s *Server) Serve(ctx context.Context, addr string) (bound net.Addr, done <-chan error, err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	stopped := make(chan error, 1)
	go func() { stopped <- stop(ctx, server, served) }()
	return ln.Addr(), stopped, nil
}

// stop ends the server with ctx, or notes that it failed by itself.
func stop(ctx context.Context, server *http.Server, served <-chan error) error {
	select {
	case err := <-served:
		return fmt.Errorf("serve health and metrics: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	return nil
}
