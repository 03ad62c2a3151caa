package awsconf

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Event streams are read over HTTP/2 where TLS offers it, with the same certificates,
// and an answer that nobody reads takes no more than its window.
func TestEventStreams(t *testing.T) {
	const window = 64 << 10
	var sent atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 8<<10))
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}))
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{}
	srv.StartTLS()
	t.Cleanup(srv.Close) // after the bodies are closed, for which it waits
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	cfg, err := Load(t.Context(), Settings{Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	events := EventStreams(cfg, window)
	get := func(client interface {
		Do(*http.Request) (*http.Response, error)
	}) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := get(events.HTTPClient)
	if resp.Proto != "HTTP/2.0" {
		t.Errorf("speaks %s", resp.Proto)
	}
	if plain := get(cfg.HTTPClient); plain.Proto != "HTTP/1.1" {
		t.Errorf("the configuration itself speaks %s now", plain.Proto)
	} else {
		plain.Body.Close()
	}

	// The server stops when the window is full, and goes on when it is read.
	settled := func() int64 {
		deadline := time.Now().Add(10 * time.Second)
		for last := int64(-1); ; {
			n := sent.Load()
			if n == last && n > 0 {
				return n
			}
			if time.Now().After(deadline) {
				t.Fatalf("the server goes on sending: %d bytes", n)
			}
			last = n
			time.Sleep(100 * time.Millisecond)
		}
	}
	settled()
	sent.Store(0)
	if _, err := io.CopyN(io.Discard, resp.Body, 10*window); err != nil {
		t.Fatal(err)
	}
	// What the server's own buffers hold comes on top of the window.
	if n := settled(); n < 9*window || n > 12*window {
		t.Errorf("after 10 windows were read the server had sent %d more bytes, %.1f windows", n, float64(n)/window)
	}
}
