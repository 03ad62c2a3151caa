package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kinetl/kinetl/dest/postgres/postgrestest"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// buildProgram builds kinetl as users have it, and returns where it is.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kinetl")
	if out, err := exec.Command("go", "build", "-tags", "duckdb_arrow", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// background is a command that runs until it is stopped.
type background struct {
	cmd  *exec.Cmd
	done chan error

	each func(line []byte)
	line []byte // begun, and not yet ended

	mu   sync.Mutex
	text bytes.Buffer // stdout and stderr
}

// launch starts a command that is killed when the test ends, if it still runs. each,
// which may be nil, gets every line that the command prints, in order.
func launch(t *testing.T, cmd *exec.Cmd, each func(line []byte)) *background {
	t.Helper()
	b := &background{cmd: cmd, each: each, done: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = b, b // one writer: one goroutine writes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.done <- cmd.Wait(); close(b.done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended if all went well
		<-b.done
	})
	return b
}

func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.text.Write(p)
	b.mu.Unlock()
	if b.each == nil {
		return len(p), nil
	}
	b.line = append(b.line, p...)
	for {
		line, rest, ended := bytes.Cut(b.line, []byte("\n"))
		if !ended {
			return len(p), nil
		}
		b.each(line)
		b.line = rest
	}
}

func (b *background) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the command has printed a text.
func (b *background) await(t *testing.T, text string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(scriptPatience)
	for !strings.Contains(b.String(), text) {
		select {
		case <-tick.C:
		case err := <-b.done:
			t.Fatalf("it ended before it printed %q: %v: %s", text, err, b)
		case <-deadline:
			t.Fatalf("it does not print %q: %s", text, b)
		}
	}
}

// stop asks the command to stop, which it must do by itself, with exit code 0.
func (b *background) stop(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := b.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("it ended before it was asked to: %v: %s", err, tail(b.String()))
	}
	if err := <-b.done; err != nil {
		t.Errorf("after the signal %v: %v: %s", signal, err, tail(b.String()))
	}
}

// kill is SIGKILL, which nothing but it may end the command before.
func (b *background) kill(t *testing.T) {
	t.Helper()
	_ = b.cmd.Process.Kill() // what ended it tells
	b.killed(t)
}

// killed waits for the end of a command that somebody kills.
func (b *background) killed(t *testing.T) {
	t.Helper()
	if err := <-b.done; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the program ended by itself: %v\n%s", err, tail(b.String()))
	}
}

// scene is what a fleet of processes works in: the program, a Kinesis server, and a
// PostgreSQL database that the documents name by the variable FLEET_DSN.
type scene struct {
	program string
	server  *kinesistest.Server
	dsn     string
	env     []string
}

func newScene(t *testing.T, program string) *scene {
	t.Helper()
	s := &scene{program: program, dsn: postgrestest.Start(t)}
	s.env = append(os.Environ(), "FLEET_DSN="+s.dsn)
	var err error
	if s.server, err = kinesistest.Start(kinesistest.Options{NoLimits: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.server.Close() })
	return s
}

// createStreams creates streams of so many shards.
func (s *scene) createStreams(t *testing.T, shards int, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.server.CreateStream(name, shards); err != nil {
			t.Fatal(err)
		}
	}
}

// command is kinetl run of documents.
func (s *scene) command(documents string, flags ...string) *exec.Cmd {
	cmd := exec.Command(s.program, append([]string{"run", documents}, flags...)...)
	cmd.Env = s.env
	return cmd
}

// finish stops workers and then loads what is left.
func (s *scene) finish(t *testing.T, documents string, workers ...*background) {
	t.Helper()
	for _, w := range workers {
		w.stop(t, syscall.SIGTERM)
	}
	last := s.command(documents, "--once", "--log-level", "warn")
	if out, err := last.CombinedOutput(); err != nil {
		t.Fatalf("the last run: %v\n%s", err, tail(string(out)))
	}
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
