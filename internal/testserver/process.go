// Package testserver installs servers that somebody else wrote, pinned and once, and
// runs them for a test. Packages that know a server by name use it.
package testserver

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const startTimeout = 60 * time.Second

// Start runs a server that will listen on a port of 127.0.0.1 until the test ends, waits
// until it answers at the path health, and returns its endpoint. A server that minds its
// stdin ends when that does: the system closes it when the test's process dies, however
// it does.
func Start(t testing.TB, cmd *exec.Cmd, port, health string) (endpoint string) {
	t.Helper()
	output := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if _, err := cmd.StdinPipe(); err != nil { // open until Wait returns, or this process ends
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	gone := false
	t.Cleanup(func() {
		if !gone {
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said: %s", strings.Join(cmd.Args, " "), output)
		}
	})
	endpoint = "http://127.0.0.1:" + port
	client := &http.Client{Timeout: startTimeout}
	defer client.CloseIdleConnections()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(startTimeout)
	for {
		if resp, err := client.Get(endpoint + health); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return endpoint
		}
		select {
		case err := <-ended:
			gone = true
			t.Fatalf("%s ended before it answered: %v: %s", strings.Join(cmd.Args, " "), err, output)
		case <-deadline:
			t.Fatalf("%s does not answer on port %s", strings.Join(cmd.Args, " "), port)
		case <-again.C:
		}
	}
}

// FreePort is a port that nobody listens on.
func FreePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// syncBuffer is written by the process and read by the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
