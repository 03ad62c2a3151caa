package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// This file measures the program as a user runs it: bin/kinetl in a process of its
// own, at its defaults, with a DuckDB file and, unless something else is said, leases in
// SQLite, against a server in this process over TLS.

const pipelineFile = `apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: source }
spec: { connector: kinesis, config: { endpoint: "%s", streams: [rows] } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: file }
spec: { connector: duckdb, config: { path: "%s" } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: bench }
spec: { source: { name: source }, destination: { name: file }, leases: { %s }%s }
`

// program is bin/kinetl beside its server.
type program struct {
	server *kinesistest.Server
	folder string
	leases string // what the pipeline says about its leases
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func newProgram(options kinesistest.Options, shards int) (*program, error) {
	options.TLS = true
	server, err := kinesistest.Start(options)
	if err != nil {
		return nil, err
	}
	p := &program{server: server}
	if p.folder, err = os.MkdirTemp("", "kinetl-bench"); err == nil {
		p.leases = fmt.Sprintf("path: %q", filepath.Join(p.folder, "leases.db"))
		err = os.WriteFile(p.bundle(), server.CertificatePEM(), 0o644)
	}
	if err == nil {
		err = server.CreateStream("rows", shards)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *program) bundle() string { return filepath.Join(p.folder, "server.pem") }
func (p *program) file() string   { return filepath.Join(p.folder, "rows.duckdb") }

// start runs the pipeline; more is added to its spec.
func (p *program) start(ctx context.Context, more string, flags ...string) error {
	documents := filepath.Join(p.folder, "pipeline.yaml")
	text := fmt.Sprintf(pipelineFile, p.server.URL(), p.file(), p.leases, more)
	if err := os.WriteFile(documents, []byte(text), 0o644); err != nil {
		return err
	}
	p.cmd = exec.CommandContext(ctx, "bin/kinetl", append([]string{"run", documents, "--log-level", "warn"}, flags...)...)
	p.cmd.Env = append(os.Environ(), "AWS_CA_BUNDLE="+p.bundle())
	p.cmd.Stderr = &p.stderr
	return p.cmd.Start()
}

// wait waits for the program to end; its words are part of the error.
func (p *program) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("kinetl run: %w: %s", err, p.stderr.String())
	}
	return nil
}

func (p *program) close() {
	if p.cmd != nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait() // what it measured is known
	}
	p.server.Close()
	_ = os.RemoveAll(p.folder)
}

// cpu is the CPU seconds that the program has used so far.
func (p *program) cpu() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, err // clock ticks. Source: proc(5)
}

// peak is the most memory that the program has held, in MB.
func (p *program) peak() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseFloat(strings.Fields(kb)[0], 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in %s", text)
}

// idle is what shards cost that have nothing new, once all are held and polled.
func idle(ctx context.Context, shards int) error {
	p, err := newProgram(kinesistest.Options{ShardLimit: shards}, shards)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.start(ctx, ""); err != nil {
		return err
	}
	started := time.Now()
	read := func() int { return p.server.Count("GetShardIterator") }
	for read() < shards {
		if time.Since(started) > 5*time.Minute {
			return fmt.Errorf("%d of %d shards are read after five minutes: %s", read(), shards, p.stderr.String())
		}
		<-time.After(100 * time.Millisecond)
	}
	fmt.Printf("%d idle shards: all are read after %.1f s\n", shards, time.Since(started).Seconds())
	<-time.After(time.Minute) // until they count as idle
	cpu, err := p.cpu()
	if err != nil {
		return err
	}
	calls, at := p.server.Count("GetRecords"), time.Now()
	<-time.After(time.Minute)
	seconds := time.Since(at).Seconds()
	end, err := p.cpu()
	if err != nil {
		return err
	}
	peak, err := p.peak()
	if err != nil {
		return err
	}
	fmt.Printf("%d idle shards: %.1f %% of one core, %.0f GetRecords a second, %.0f MB resident at the peak\n",
		shards, 100*(end-cpu)/seconds, float64(p.server.Count("GetRecords")-calls)/seconds, peak)
	return nil
}

// backlog is a stream that is full when the program starts.
func backlog(ctx context.Context, records, shards int) error {
	p, err := newProgram(kinesistest.Options{NoLimits: true, ShardLimit: shards}, shards)
	if err != nil {
		return err
	}
	defer p.close()
	ids, err := p.server.Shards("rows")
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range records {
		if _, err := p.server.PutShard("rows", ids[i%shards], fmt.Sprintf("customer-%d", rng.IntN(5000)), []byte(flat(rng, i))); err != nil {
			return err
		}
	}
	fmt.Printf("backlog: %d records over %d shards are in the stream\n", records, shards)
	started := time.Now()
	if err := p.start(ctx, "", "--once"); err != nil {
		return err
	}
	var peak float64
	done := make(chan error, 1)
	go func() { done <- p.wait() }()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			running = false
		case <-time.After(200 * time.Millisecond):
			if mb, err := p.peak(); err == nil {
				peak = max(peak, mb)
			}
		}
	}
	took := time.Since(started)
	usage := p.cmd.ProcessState
	if err := exact(ctx, p.file(), records); err != nil {
		return err
	}
	fmt.Printf("backlog: %d rows, each once, in %.0f s: %.0f k rows a second, %.0f k per CPU-second, %.0f MB resident at the peak\n",
		records, took.Seconds(), float64(records)/took.Seconds()/1000,
		float64(records)/(usage.UserTime()+usage.SystemTime()).Seconds()/1000, peak)
	return nil
}

// exact checks that the file holds each id from 0 on once.
func exact(ctx context.Context, file string, want int) error {
	db, err := sql.Open("duckdb", file+"?access_mode=READ_ONLY")
	if err != nil {
		return err
	}
	defer db.Close()
	var rows, ids, least, most int
	if err := db.QueryRowContext(ctx, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM rows").Scan(&rows, &ids, &least, &most); err != nil {
		return err
	}
	if rows != want || ids != want || least != 0 || most != want-1 {
		return fmt.Errorf("the table has %d rows, %d ids from %d to %d, want each of %d once", rows, ids, least, most, want)
	}
	return nil
}
