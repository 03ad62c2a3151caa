package dynamotest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const startTimeout = 60 * time.Second

// start runs a server on the port that it finds in PORT until the test ends, and waits
// until it answers. The server ends when its stdin does: the system closes that when
// the test's process dies, however it does.
func start(t testing.TB, cmd *exec.Cmd, health string) (endpoint string) {
	t.Helper()
	port := freePort(t)
	output := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "PORT="+port)
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

func freePort(t testing.TB) string {
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
