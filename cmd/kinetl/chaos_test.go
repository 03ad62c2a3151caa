package main

import (
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
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	table := order{dsn: c.dsn, records: "SELECT k, n FROM chaos"}
	ctx, stop := context.WithCancel(t.Context())
	var meanwhile sync.WaitGroup
	meanwhile.Go(func() { c.produce(ctx) })
	meanwhile.Go(func() { table.watch(ctx, t) })
	for i := range *chaosWorkers {
		c.start(i)
	}
	counts := map[string]int{}
	for deadline := time.Now().Add(*chaosFor); time.Now().Before(deadline); {
		<-time.After(time.Duration(500+c.rng.IntN(1500)) * time.Millisecond)
		counts[c.trouble()]++
	}
	stop()
	meanwhile.Wait()
	c.finish(t, c.documents, c.workers...)
	c.check(&table)
	t.Logf("%v of trouble: %v, %d throttled calls, %d looks at the table", *chaosFor, counts, c.throttled.Load(), table.looks)
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
spec: { connector: postgres, config: { url: { env: FLEET_DSN } } }
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
	*scene
	t         *testing.T
	rng       *rand.Rand // of the trouble; the producer has its own
	documents string

	throttling atomic.Bool
	throttled  atomic.Int64
	workers    []*background
	put        map[string]int // records of each key; the producer's
}

func newChaos(t *testing.T) *chaos {
	c := &chaos{
		scene: newScene(t, buildProgram(t)), t: t, rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)),
		documents: filepath.Join(t.TempDir(), "pipeline.yaml"), put: map[string]int{},
		workers: make([]*background, *chaosWorkers),
	}
	c.createStreams(t, *chaosShards, "polled", "pushed")
	writeFile(t, c.documents, fmt.Sprintf(chaosDocuments, c.server.URL(), c.throttle(dynamotest.Dynalite(t))))
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
	c.workers[i] = launch(c.t, c.command(c.documents, "--log-level", "warn"), nil)
}

// trouble makes some, and says what.
func (c *chaos) trouble() string {
	i := c.rng.IntN(len(c.workers))
	switch c.rng.IntN(6) {
	case 0:
		c.workers[i].kill(c.t)
		c.start(i)
		return "kills"
	case 1:
		// Stopped for longer than a lease, it wakes up and believes that it still has it.
		_ = c.workers[i].cmd.Process.Signal(syscall.SIGSTOP)
		<-time.After(time.Duration(3500+c.rng.IntN(2500)) * time.Millisecond)
		_ = c.workers[i].cmd.Process.Signal(syscall.SIGCONT)
		return "pauses"
	case 2:
		c.workers[i].stop(c.t, syscall.SIGTERM)
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

// check compares the table with what was put.
func (c *chaos) check(table *order) {
	conn, err := pgx.Connect(c.t.Context(), c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	table.look(c.t.Context(), c.t, conn)
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
