package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/config"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

const (
	blockedEnv    = "KINETL_TEST_BLOCKED"
	blockedLimit  = 400 << 20
	blockedShards = 64
	perShard      = 12 << 20
)

// R27, K22: 64 shards full of records and a table that takes none of them, at the
// default settings, stay under 400 MB resident, DuckDB included, polled and by fan-out.
func TestBlockedSinkMemory(t *testing.T) {
	if documents := os.Getenv(blockedEnv); documents != "" {
		runBlocked(documents)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	if testing.Short() || raceDetector {
		t.Skip("serves 768 MB, and the race detector takes memory of its own")
	}
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	fillShards(t, server)
	for _, consumer := range []string{"shared", "fan-out"} {
		t.Run(consumer, func(t *testing.T) { blockedMemory(t, server, consumer) })
	}
}

func blockedMemory(t *testing.T, server *kinesistest.Server, consumer string) {
	folder := t.TempDir()
	documents := filepath.Join(folder, "pipeline.yaml")
	writeFile(t, documents, fmt.Sprintf(blockedDocuments, server.URL(), consumer, filepath.Join(folder, "blocked.duckdb"), filepath.Join(folder, "leases.db")))

	child := exec.Command(os.Args[0], "-test.run=TestBlockedSinkMemory$")
	child.Env = append(os.Environ(), blockedEnv+"="+documents)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || line != "full\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	peak := procStatus(t, child.Process.Pid, "VmHWM")
	now := procStatus(t, child.Process.Pid, "VmRSS")
	_ = stdin.Close() // the child ends
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d shards, blocked: %d MB resident, %d MB at the peak", blockedShards, now>>20, peak>>20)
	if peak > blockedLimit {
		t.Errorf("%d MB resident at the peak, more than %d", peak>>20, blockedLimit>>20)
	}
}

const blockedDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: blocked }
spec: { connector: kinesis, config: { region: us-east-1, endpoint: %q, streams: ["blocked"], consumer: %s } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: file }
spec: { connector: duckdb, config: { path: %q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: blocked }
spec:
  source: { name: blocked }
  destination: { name: file }
  leases: { store: sqlite, path: %q }
`

func fillShards(t *testing.T, server *kinesistest.Server) {
	t.Helper()
	if err := server.CreateStream("blocked", blockedShards); err != nil {
		t.Fatal(err)
	}
	shards, err := server.Shards("blocked")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 900)
	for _, shard := range shards {
		for n := range perShard / 1000 {
			data := fmt.Sprintf(`{"n":%d,"shard":%q,"text":%q}`, n, shard, text)
			if _, err := server.PutShard("blocked", shard, "k", []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// procStatus reads a value of /proc/PID/status in bytes.
func procStatus(t *testing.T, pid int, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatalf("no %s in /proc/%d/status", name, pid)
	return 0
}

// blockedAfter lets commits through while open, and then holds them until ctx ends.
type blockedAfter struct {
	kinetl.Destination
	open atomic.Int64
}

func (b *blockedAfter) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	if b.open.Add(-1) >= 0 {
		return b.Destination.Commit(ctx, table, parts)
	}
	<-ctx.Done()
	return kinetl.CommitReport{}, ctx.Err()
}

// runBlocked is the child: the pipeline as `run` builds it, with a table that takes
// ten commits and then no more. It says when reading has come to rest.
func runBlocked(documents string) {
	plans, err := loadPlans([]string{documents}, "")
	if err != nil {
		panic(err)
	}
	if err := runBlockedPlan(plans[0]); err != nil {
		panic(err)
	}
}

func runBlockedPlan(plan config.Plan) error {
	var fetched atomic.Int64
	limitMemory([]config.Plan{plan})
	j, err := build(context.Background(), plan, buildOptions{
		worker: workerID(), logger: slog.New(slog.DiscardHandler),
		observe: func(e kinetl.Event) {
			if e.Kind == kinetl.EventFetched {
				fetched.Add(e.Records)
			}
		},
	})
	if err != nil {
		return err
	}
	blocked := &blockedAfter{Destination: j.pipeline.Destination}
	blocked.open.Store(10)
	j.pipeline.Destination = blocked
	j.pipeline.Config.Drain = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.pipeline.Run(ctx) }()
	// At rest: not one record fetched in five seconds.
	for last := int64(-1); fetched.Load() != last; time.Sleep(5 * time.Second) {
		last = fetched.Load()
	}
	fmt.Println("full")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has looked
	cancel()
	return <-done
}
