package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl/dest/postgres/postgrestest"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

var (
	chaosFor     = flag.Duration("chaos", 20*time.Second, "how long TestChaos makes trouble")
	chaosWorkers = flag.Int("workers", 3, "worker processes of TestChaos")
	chaosShards  = flag.Int("shards", 8, "shards of each of the two streams of TestChaos")
)

// TestChaos: a fleet of processes loads two streams, one polled and one by fan-out,
// into one PostgreSQL table, with leases in DynamoDB, while workers are killed and
// stopped for longer than a lease, DynamoDB throttles, and shards split and merge.
// Nothing is lost, nothing is there twice, and at every moment what the table has of a
// key is the beginning of what was put for it, in order (R30).
func TestChaos(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("starts and kills processes, which the race detector does not see into")
	}
	c := newChaos(t)
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { c.produce(ctx) })
	background.Go(func() { c.watch(ctx) })
	for i := range *chaosWorkers {
		c.start(i)
	}
	counts := map[string]int{}
	for deadline := time.Now().Add(*chaosFor); time.Now().Before(deadline); {
		<-time.After(time.Duration(500+c.rng.IntN(1500)) * time.Millisecond)
		counts[c.trouble()]++
	}
	stop()
	background.Wait()
	for i := range c.workers {
		c.terminate(i)
	}
	last := exec.Command(c.program, "run", "--once", "--log-level", "warn", c.documents)
	last.Env = c.env
	if out, err := last.CombinedOutput(); err != nil {
		t.Fatalf("the last run: %v\n%s", err, tail(string(out)))
	}
	c.check()
	t.Logf("%v of trouble: %v, %d throttled calls, %d looks at the table", *chaosFor, counts, c.throttled.Load(), c.looks)
}

const chaosDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: polled }
spec: { connector: kinesis, config: { endpoint: %[1]q, streams: [polled], readShare: 1 } }
---
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: pushed }
spec: { connector: kinesis, config: { endpoint: %[1]q, streams: [pushed], consumer: fan-out } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: warehouse }
spec: { connector: postgres, config: { url: { env: CHAOS_DSN } } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: chaos-polled }
spec:
  source: { name: polled }
  destination: { name: warehouse, table: chaos }
  batch: { rows: 500, age: 200ms }
  memory: 64MiB
  leases: { store: dynamodb, failover: 3s, aws: { endpoint: %[2]q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: chaos-pushed }
spec:
  source: { name: pushed }
  destination: { name: warehouse, table: chaos }
  batch: { rows: 500, age: 200ms }
  memory: 64MiB
  leases: { store: dynamodb, failover: 3s, aws: { endpoint: %[2]q } }
`

type chaos struct {
	t         *testing.T
	rng       *rand.Rand // of the trouble; the producer has its own
	program   string
	documents string
	env       []string
	server    *kinesistest.Server
	dsn       string

	throttling atomic.Bool
	throttled  atomic.Int64
	looks      int
	workers    []*exec.Cmd
	logs       []*bytes.Buffer
	put        map[string]int // records of each key; the producer's
}

func newChaos(t *testing.T) *chaos {
	folder := t.TempDir()
	c := &chaos{
		t: t, rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), put: map[string]int{},
		program: filepath.Join(folder, "kinetl"), documents: filepath.Join(folder, "pipeline.yaml"),
		workers: make([]*exec.Cmd, *chaosWorkers), logs: make([]*bytes.Buffer, *chaosWorkers),
	}
	if out, err := exec.Command("go", "build", "-tags", "duckdb_arrow", "-o", c.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	c.dsn = postgrestest.Start(t)
	var err error
	if c.server, err = kinesistest.Start(kinesistest.Options{NoLimits: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.server.Close() })
	for _, stream := range []string{"polled", "pushed"} {
		if err := c.server.CreateStream(stream, *chaosShards); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, c.documents, fmt.Sprintf(chaosDocuments, c.server.URL(), c.throttle(dynamotest.Dynalite(t))))
	c.env = append(os.Environ(), "CHAOS_DSN="+c.dsn)
	t.Cleanup(func() {
		for _, w := range c.workers {
			if w != nil {
				_ = w.Process.Kill()
				_, _ = w.Process.Wait()
			}
		}
	})
	return c
}

// throttle stands before DynamoDB. While it is asked to it refuses a third of all
// calls, as the service does: status 400 and the name of the exception.
func (c *chaos) throttle(endpoint string) string {
	target, err := url.Parse(endpoint)
	if err != nil {
		c.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of calls that were given up
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.throttling.Load() && rand.IntN(3) == 0 {
			c.throttled.Add(1)
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"throttled"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	c.t.Cleanup(front.Close)
	return front.URL
}

func (c *chaos) start(i int) {
	c.t.Helper()
	c.logs[i] = &bytes.Buffer{}
	w := exec.Command(c.program, "run", "--log-level", "warn", c.documents)
	w.Env, w.Stderr = c.env, c.logs[i]
	if err := w.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.workers[i] = w
}

// terminate asks a worker to stop and waits until it has.
func (c *chaos) terminate(i int) {
	c.t.Helper()
	_ = c.workers[i].Process.Signal(syscall.SIGTERM)
	if err := c.workers[i].Wait(); err != nil {
		c.t.Errorf("a worker that was asked to stop: %v\n%s", err, tail(c.logs[i].String()))
	}
}

// trouble makes some, and says what.
func (c *chaos) trouble() string {
	i := c.rng.IntN(len(c.workers))
	switch c.rng.IntN(6) {
	case 0:
		_ = c.workers[i].Process.Kill()
		_ = c.workers[i].Wait() // killed
		c.start(i)
		return "kills"
	case 1:
		// Stopped for longer than a lease, it wakes up and believes that it still has it.
		_ = c.workers[i].Process.Signal(syscall.SIGSTOP)
		<-time.After(time.Duration(3500+c.rng.IntN(2500)) * time.Millisecond)
		_ = c.workers[i].Process.Signal(syscall.SIGCONT)
		return "pauses"
	case 2:
		c.terminate(i)
		c.start(i)
		return "deploys"
	case 3:
		c.throttling.Store(!c.throttling.Load())
		return "throttling turned"
	}
	stream := []string{"polled", "pushed"}[c.rng.IntN(2)]
	open, err := c.server.Shards(stream)
	if err != nil {
		c.t.Fatal(err)
	}
	// A refused split or merge (a closed shard, not adjacent) is as good as none.
	if n := len(open); n > *chaosShards && c.rng.IntN(2) == 0 {
		_, _ = c.server.Merge(stream, open[n-2], open[n-1])
		return "merges"
	}
	_, _ = c.server.Split(stream, open[len(open)-1-c.rng.IntN(*chaosShards)])
	return "splits"
}

// produce puts numbered records of a hundred keys a stream until it is stopped.
func (c *chaos) produce(ctx context.Context) {
	rng := rand.New(rand.NewPCG(1, 1))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range 10 {
			stream := []string{"polled", "pushed"}[rng.IntN(2)]
			key := fmt.Sprintf("%s-%d", stream, rng.IntN(100))
			if _, _, err := c.server.Put(stream, key, fmt.Appendf(nil, `{"k":%q,"n":%d,"text":"%040d"}`, key, c.put[key], c.put[key])); err != nil {
				panic(err)
			}
			c.put[key]++
		}
	}
}

// disorder finds keys of which the table has anything but the beginning, each once.
const disorder = `SELECT k, count(*), count(DISTINCT n), max(n) FROM chaos GROUP BY k
	HAVING count(*) <> max(n) + 1 OR count(DISTINCT n) <> count(*)`

// watch looks at the table again and again.
func (c *chaos) watch(ctx context.Context) {
	conn, err := pgx.Connect(ctx, c.dsn)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil {
		var exists bool
		if err := conn.QueryRow(ctx, "SELECT to_regclass('chaos') IS NOT NULL").Scan(&exists); err != nil || !exists {
			<-time.After(50 * time.Millisecond)
			continue
		}
		if c.looks++; !c.inOrder(ctx, conn) {
			return
		}
	}
}

func (c *chaos) inOrder(ctx context.Context, conn *pgx.Conn) bool {
	rows, err := conn.Query(ctx, disorder)
	if err != nil {
		return true // the context has ended
	}
	defer rows.Close()
	good := true
	for rows.Next() {
		var key string
		var count, distinct, most int64
		if err := rows.Scan(&key, &count, &distinct, &most); err != nil {
			c.t.Error(err)
		}
		c.t.Errorf("R30: of key %s the table has %d rows, %d of them different, up to number %d", key, count, distinct, most)
		good = false
	}
	return good
}

// check compares the table with what was put.
func (c *chaos) check() {
	conn, err := pgx.Connect(c.t.Context(), c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	c.inOrder(c.t.Context(), conn)
	total := 0
	for key, want := range c.put {
		total += want
		var have int
		if err := conn.QueryRow(c.t.Context(), "SELECT count(*) FROM chaos WHERE k = $1", key).Scan(&have); err != nil {
			c.t.Fatal(err)
		}
		if have != want {
			c.t.Errorf("key %s: %d of %d records are in the table", key, have, want)
		}
	}
	c.t.Logf("%d records put", total)
}
