package main

import (
	"flag"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

var manyShards = flag.Int("shards", 0, "shards of TestManyShards, which takes two minutes")

// TestManyShards: one worker at the default settings, with leases in DynamoDB, owns and
// reads all shards within 30 s of its start. What it asks of DynamoDB in a minute then
// is what docs/dynamodb.md says.
func TestManyShards(t *testing.T) {
	if *manyShards == 0 {
		t.Skip("run by make measure")
	}
	const failover = 10 // seconds, the default
	shards := *manyShards
	p, err := newProgram(kinesistest.Options{ShardLimit: shards}, shards)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	endpoint := dynamotest.Dynalite(t)
	requests := &counter{by: map[string]int{}}
	p.leases = `store: dynamodb, aws: { endpoint: "` + requests.before(t, endpoint) + `" }`
	t.Chdir("..") // where bin/kinetl is
	if err := p.start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for p.server.Count("GetShardIterator") < shards {
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("%d of %d shards are read: %s", p.server.Count("GetShardIterator"), shards, p.stderr.String())
		}
		<-time.After(50 * time.Millisecond)
	}
	took := time.Since(began)
	leases, err := dynamolease.OpenReader(t.Context(), dynamolease.Options{AWS: dynamotest.Config(endpoint), Table: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := leases.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owned := 0
	for _, l := range rows {
		if l.Owner != "" {
			owned++
		}
	}
	t.Logf("%d shards: all are owned and read after %.1f s", owned, took.Seconds())
	if owned != shards {
		t.Errorf("of %d shards, all of which were read, %d are owned", shards, owned)
	}
	if took > 30*time.Second {
		t.Errorf("it took %s, and 30 s is the bar", took)
	}

	<-time.After(2 * failover * time.Second) // until the renewals are spread
	before := requests.counts()
	<-time.After(time.Minute)
	after := requests.counts()
	for action, formula := range map[string]int{"UpdateItem": 180 * shards / failover, "Scan": 150 / failover, "GetItem": 600 / failover} {
		have := after[action] - before[action]
		t.Logf("%-10s %6d a minute, docs/dynamodb.md says %d", action, have, formula)
		most := formula + formula/10 + 8 // looks for KCL 3
		if action == "Scan" {
			most *= 1 + shards/1000 // a request for each MB of the table
		}
		if have > most || have < formula/2 {
			t.Errorf("%s: %d a minute, and docs/dynamodb.md says %d", action, have, formula)
		}
	}
	if text := p.stderr.String(); text != "" {
		t.Errorf("it warns: %.4000s", text)
	}
}

// counter counts requests by action.
type counter struct {
	mu sync.Mutex
	by map[string]int
}

// before stands before DynamoDB and counts what passes.
func (c *counter) before(t *testing.T, endpoint string) string {
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of calls that were given up
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		c.mu.Lock()
		c.by[action]++
		c.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

func (c *counter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by)
}
