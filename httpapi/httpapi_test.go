package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/httpapi"
	"github.com/kinetl/kinetl/lease"
)

func shardID(stream string, n int) kinetl.ShardID {
	return kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/" + stream, Created: 1700000000, Shard: fmt.Sprintf("shardId-%012d", n)}
}

var orders = shardID("orders", 0)

func get(s *httpapi.Server, path string) (status int, body string) {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// opened makes a server whose pipeline reads a shard into a table.
func opened() *httpapi.Server {
	s := httpapi.New()
	s.Observe(kinetl.Event{Kind: kinetl.EventLeaseTaken, Shard: orders})
	s.Observe(kinetl.Event{Kind: kinetl.EventOpened, Shard: orders, Table: "orders"})
	return s
}

func wantReady(t *testing.T, s *httpapi.Server, reason string) {
	t.Helper()
	status, body := get(s, "/readyz")
	if reason == "" {
		if status != http.StatusOK {
			t.Errorf("/readyz is %d %q, want 200", status, body)
		}
		return
	}
	if status != http.StatusServiceUnavailable || !strings.Contains(body, reason) || strings.Count(body, "\n") != 1 {
		t.Errorf("/readyz is %d %q, want 503 and a line with %q", status, body, reason)
	}
}

func wantSeries(t *testing.T, s *httpapi.Server, lines ...string) {
	t.Helper()
	status, body := get(s, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics is %d: %s", status, body)
	}
	for _, line := range lines {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "kinetl_") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

func TestAliveBeforeAnythingHappened(t *testing.T) {
	s := httpapi.New()
	if status, body := get(s, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz is %d %q", status, body)
	}
	wantReady(t, s, "starting")
}

func TestReadyOnceAShardWasOpened(t *testing.T) {
	s := httpapi.New()
	s.Observe(kinetl.Event{Kind: kinetl.EventLeaseTaken, Shard: orders})
	s.Observe(kinetl.Event{Kind: kinetl.EventSynced})
	wantReady(t, s, "no shard was opened yet")
	s.Observe(kinetl.Event{Kind: kinetl.EventOpened, Shard: orders, Table: "orders"})
	wantReady(t, s, "")
	s.Drain()
	wantReady(t, s, "draining")
}

// A worker that holds only a halted shard can do no more: were it not ready, a
// roll-out would wait for it for ever.
func TestReadyWithAHaltedShard(t *testing.T) {
	s := httpapi.New()
	s.Observe(kinetl.Event{Kind: kinetl.EventLeaseTaken, Shard: orders})
	s.Observe(kinetl.Event{Kind: kinetl.EventIncident, Shard: orders, Incident: &kinetl.Incident{Kind: kinetl.IncidentExpired, Halts: true}})
	wantReady(t, s, "")
}

func TestReadyOnlyWhenEveryPipelineIs(t *testing.T) {
	s := httpapi.New()
	first, second := s.Observer("first"), s.Observer("second")
	first(kinetl.Event{Kind: kinetl.EventSynced})
	wantReady(t, s, "pipeline second: starting")
	second(kinetl.Event{Kind: kinetl.EventSynced})
	wantReady(t, s, "")
}

func TestNotReadyWhileCommitsFail(t *testing.T) {
	retry := kinetl.Event{Kind: kinetl.EventRetrying, Table: "orders", Reason: "committing", Err: errors.New("connection refused")}
	for name, end := range map[string]kinetl.Event{
		"a commit succeeds":      {Kind: kinetl.EventCommitted, Shard: orders, Table: "orders"},
		"the table answers":      {Kind: kinetl.EventReopened, Shard: orders, Table: "orders", Err: &kinetl.FencedError{}},
		"the last shard is lost": {Kind: kinetl.EventLeaseLost, Shard: orders},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := opened()
				s.Observe(retry)
				time.Sleep(time.Minute)
				wantReady(t, s, "")
				s.Observe(retry)
				time.Sleep(time.Second)
				wantReady(t, s, "commits to table orders have failed for 1m1s")
				s.Observe(end)
				wantReady(t, s, "")
			})
		})
	}
}

func TestNotReadyWhileAShardCannotBeOpenedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened()
		s.Observe(kinetl.Event{Kind: kinetl.EventReopened, Shard: orders, Table: "orders", Err: errors.New("claim: connection refused")})
		time.Sleep(61 * time.Second)
		wantReady(t, s, "reading orders/shardId-000000000000 could not begin for 1m1s")
		s.Observe(kinetl.Event{Kind: kinetl.EventOpened, Shard: orders, Table: "orders"})
		wantReady(t, s, "")
	})
}

func TestMetricsOfAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened()
		s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: orders, Table: "orders", Records: 7, Bytes: 700, Lag: 1500 * time.Millisecond})
		time.Sleep(4 * time.Second)
		s.Observe(kinetl.Event{Kind: kinetl.EventCommitted, Shard: orders, Table: "orders", Rows: 5, DeadLetters: 2, Took: 80 * time.Millisecond})
		time.Sleep(3 * time.Second)
		wantSeries(t, s,
			`kinetl_lag_seconds{pipeline="",shard="shardId-000000000000",stream="orders"} 1.5`,
			`kinetl_read_records_total{pipeline="",shard="shardId-000000000000",stream="orders"} 7`,
			`kinetl_read_bytes_total{pipeline="",shard="shardId-000000000000",stream="orders"} 700`,
			`kinetl_position_age_seconds{pipeline="",shard="shardId-000000000000",stream="orders"} 3`,
			`kinetl_rows_total{pipeline="",stream="orders",table="orders"} 5`,
			`kinetl_dead_letters_total{pipeline="",stream="orders",table="orders"} 2`,
			`kinetl_commit_seconds_bucket{pipeline="",table="orders",le="0.05"} 0`,
			`kinetl_commit_seconds_bucket{pipeline="",table="orders",le="0.1"} 1`,
			`kinetl_leases_held{pipeline=""} 1`,
		)
		if _, body := get(s, "/metrics"); !strings.Contains(body, "\ngo_goroutines ") || !strings.Contains(body, "\nprocess_start_time_seconds ") {
			t.Error("/metrics lacks the metrics of the Go runtime or of the process")
		}
	})
}

// Commits fail while reads find the tip: the shard's lag is zero, and the age of
// its position is what tells.
func TestPositionAgeCountsWhatIsStored(t *testing.T) {
	age := func(seconds int) string {
		return fmt.Sprintf(`kinetl_position_age_seconds{pipeline="",shard="shardId-000000000000",stream="orders"} %d`, seconds)
	}
	synctest.Test(t, func(t *testing.T) {
		s := opened()
		s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: orders, Records: 3})
		time.Sleep(9 * time.Second)
		s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: orders})
		wantSeries(t, s, age(9))
		s.Observe(kinetl.Event{Kind: kinetl.EventCommitted, Shard: orders, Table: "orders", Rows: 3})
		time.Sleep(8 * time.Second)
		wantSeries(t, s, age(8))
		s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: orders})
		wantSeries(t, s, age(0))
	})
}

func TestSeriesOfAShardEndWithItsLease(t *testing.T) {
	for _, kind := range []kinetl.EventKind{kinetl.EventLeaseReleased, kinetl.EventLeaseLost, kinetl.EventEnded} {
		t.Run(string(kind), func(t *testing.T) {
			s := opened()
			s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: orders, Records: 1})
			s.Observe(kinetl.Event{Kind: kind, Shard: orders})
			// The committer may tell of a part after the lease is gone.
			s.Observe(kinetl.Event{Kind: kinetl.EventCommitted, Shard: orders, Table: "orders", Rows: 1})
			s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: orders, Records: 1})
			if _, body := get(s, "/metrics"); strings.Contains(body, "shardId-") {
				t.Errorf("/metrics still names the shard:\n%s", body)
			}
			wantSeries(t, s, `kinetl_leases_held{pipeline=""} 0`, `kinetl_rows_total{pipeline="",stream="orders",table="orders"} 1`)
		})
	}
}

func TestStreamsOfOneNameShareSeries(t *testing.T) {
	s := opened()
	other := orders
	other.Stream = strings.Replace(other.Stream, "123456789012", "999999999999", 1)
	s.Observe(kinetl.Event{Kind: kinetl.EventLeaseTaken, Shard: other})
	for _, id := range []kinetl.ShardID{orders, other} {
		s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: id, Records: 4})
	}
	wantSeries(t, s, `kinetl_read_records_total{pipeline="",shard="shardId-000000000000",stream="orders"} 8`)
}

func TestLabelsAreBounded(t *testing.T) {
	s := opened()
	for i := range 50 {
		secret := fmt.Errorf("value %d of a record", i)
		s.Observe(kinetl.Event{Kind: kinetl.EventRetrying, Shard: orders, Table: "orders", Reason: secret.Error(), Err: secret})
		s.Observe(kinetl.Event{Kind: kinetl.EventReopened, Shard: orders, Table: "orders", Reason: secret.Error(), Err: secret})
		s.Observe(kinetl.Event{Kind: kinetl.EventDeadLetter, Shard: orders, Table: "orders", Reason: secret.Error()})
		s.Observe(kinetl.Event{Kind: kinetl.EventSchema, Table: "orders", Reason: secret.Error()})
		s.Observe(kinetl.Event{Kind: kinetl.EventIncident, Shard: orders, Incident: &kinetl.Incident{Kind: kinetl.IncidentKind(secret.Error()), Detail: secret.Error(), Halts: true}})
	}
	if _, body := get(s, "/metrics"); strings.Contains(body, "of a record") {
		t.Error("/metrics has a label from an error's text")
	}
	s.Observe(kinetl.Event{Kind: kinetl.EventRetrying, Table: "orders", Reason: "committing"})
	s.Observe(kinetl.Event{Kind: kinetl.EventReopened, Shard: orders, Table: "orders", Err: fmt.Errorf("x: %w", &kinetl.SchemaChangedError{})})
	wantSeries(t, s,
		`kinetl_retries_total{pipeline="",reason="other"} 50`,
		`kinetl_retries_total{pipeline="",reason="commit"} 1`,
		`kinetl_reopened_total{cause="other",pipeline="",stream="orders"} 50`,
		`kinetl_reopened_total{cause="schema_changed",pipeline="",stream="orders"} 1`,
		`kinetl_schema_changes_total{pipeline="",table="orders"} 50`,
		`kinetl_incidents_open{kind="other",pipeline=""} 1`,
	)
}

// The gauge counts incidents that halt and those that don't, each once, until the
// worker loses the lease that they are on.
func TestOpenIncidents(t *testing.T) {
	s := opened()
	capped := func(id string) kinetl.Event {
		return kinetl.Event{Kind: kinetl.EventIncident, Shard: orders, Incident: &kinetl.Incident{ID: id, Kind: kinetl.IncidentColumnCapped}}
	}
	for _, e := range []kinetl.Event{capped("a"), capped("b"), capped("a"), {Kind: kinetl.EventOpened, Shard: orders, Table: "orders"}} {
		s.Observe(e)
	}
	wantSeries(t, s, `kinetl_incidents_open{kind="column_capped",pipeline=""} 2`)
	wantReady(t, s, "")
	s.Observe(kinetl.Event{Kind: kinetl.EventIncident, Shard: orders, Incident: &kinetl.Incident{ID: "c", Kind: kinetl.IncidentUndecodable, Halts: true}})
	wantSeries(t, s, `kinetl_incidents_open{kind="column_capped",pipeline=""} 2`, `kinetl_incidents_open{kind="undecodable",pipeline=""} 1`)
	s.Observe(kinetl.Event{Kind: kinetl.EventLeaseLost, Shard: orders})
	wantSeries(t, s, `kinetl_incidents_open{kind="column_capped",pipeline=""} 0`, `kinetl_incidents_open{kind="undecodable",pipeline=""} 0`)
}

func TestObserveAndScrapeAtOnce(t *testing.T) {
	s := httpapi.New()
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			id := shardID("orders", n)
			s.Observe(kinetl.Event{Kind: kinetl.EventLeaseTaken, Shard: id})
			s.Observe(kinetl.Event{Kind: kinetl.EventOpened, Shard: id, Table: "orders"})
			for range 100 {
				s.Observe(kinetl.Event{Kind: kinetl.EventFetched, Shard: id, Records: 1})
				s.Observe(kinetl.Event{Kind: kinetl.EventCommitted, Shard: id, Table: "orders", Rows: 1})
			}
		})
		wg.Go(func() {
			if status, _ := get(s, "/metrics"); status != http.StatusOK {
				t.Errorf("/metrics is %d", status)
			}
		})
	}
	wg.Wait()
	wantSeries(t, s, `kinetl_rows_total{pipeline="",stream="orders",table="orders"} 800`)
}

func TestServeEndsWithItsContext(t *testing.T) {
	s := opened()
	ctx, cancel := context.WithCancel(t.Context())
	addr, done, err := s.Serve(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + addr.String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz is %d %q", resp.StatusCode, body)
	}
	if _, _, err := s.Serve(ctx, addr.String()); err == nil {
		t.Error("a second server listens on a taken address")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("stopped with %v", err)
	}
	if _, err := http.Get("http://" + addr.String() + "/readyz"); err == nil {
		t.Error("it still answers")
	}
}

// emptySource has no shards, as a worker meets it whose peers hold every lease.
type emptySource struct{}

func (emptySource) Shards(context.Context, time.Time) (kinetl.Listing, error) {
	return kinetl.Listing{At: time.Now()}, nil
}

func (emptySource) Read(context.Context, kinetl.ShardID, kinetl.Resume) (kinetl.Reader, error) {
	return nil, errors.New("there is no shard")
}

func TestIdleWorkerIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := httpapi.New()
		ctx, cancel := context.WithCancel(t.Context())
		consumer := kinetl.Consumer{Source: emptySource{}, Leases: &lease.Memory{}, Config: kinetl.ConsumerConfig{Worker: "w", Observe: s.Observe}}
		done := make(chan error, 1)
		go func() { done <- consumer.Run(ctx, func(context.Context, *kinetl.Shard) error { return nil }) }()
		synctest.Wait()
		wantReady(t, s, "")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
