package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
)

var logStart = time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)

// logged is the lines that events leave, their time left out.
func logged(level slog.Level, events ...kinetl.Event) []string {
	var out bytes.Buffer
	observe := logEvents(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	for _, e := range events {
		observe(e)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestEventLogLevels(t *testing.T) {
	shard := kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", Shard: "shardId-000000000003"}
	for _, tt := range []struct {
		event kinetl.Event
		want  string
	}{
		{kinetl.Event{Kind: kinetl.EventLeaseTaken, Shard: shard}, `level=INFO msg="lease taken" stream=orders shard=shardId-000000000003`},
		{kinetl.Event{Kind: kinetl.EventNote, Reason: "KCL 3 has stopped"}, `level=INFO msg=note what="KCL 3 has stopped"`},
		{kinetl.Event{Kind: kinetl.EventOpened, Shard: shard, Table: "o", Position: kinetl.At("17", 0)}, `level=INFO msg=reading stream=orders shard=shardId-000000000003 table=o position=17`},
		{kinetl.Event{Kind: kinetl.EventLeaseReleased, Shard: shard}, `level=INFO msg="lease released" stream=orders shard=shardId-000000000003`},
		{kinetl.Event{Kind: kinetl.EventEnded, Shard: shard}, `level=INFO msg="shard ended" stream=orders shard=shardId-000000000003`},
		{kinetl.Event{Kind: kinetl.EventSchema, Table: "o", Reason: "column a"}, `level=INFO msg="schema changed" table=o change="column a"`},
		{kinetl.Event{Kind: kinetl.EventLeaseLost, Shard: shard}, `level=WARN msg="lease lost" stream=orders shard=shardId-000000000003`},
		{kinetl.Event{Kind: kinetl.EventRetrying, Table: "o", Reason: "committing", Err: errors.New("no route")}, `level=WARN msg=retrying table=o reason=committing err="no route"`},
		{kinetl.Event{Kind: kinetl.EventIncident, Shard: shard, Incident: &kinetl.Incident{ID: "ab", Kind: kinetl.IncidentExpired, Position: "9", Detail: "gone"}}, `level=ERROR msg=incident stream=orders shard=shardId-000000000003 incident=ab kind=expired position=9 detail=gone`},
		{kinetl.Event{Kind: kinetl.EventFetched, Shard: shard, Records: 9}, ``},
		{kinetl.Event{Kind: kinetl.EventCommitted, Shard: shard, Rows: 9}, ``},
	} {
		t.Run(string(tt.event.Kind), func(t *testing.T) {
			if got := strings.Join(logged(slog.LevelInfo, tt.event), "\n"); got != tt.want {
				t.Errorf("logged %s\nwant   %s", got, tt.want)
			}
		})
	}
}

func TestEventLogHasNothingOfPayloads(t *testing.T) {
	const secret = "4111-1111"
	lines := logged(slog.LevelDebug,
		kinetl.Event{Kind: kinetl.EventDeadLetter, Table: "o", Reason: "value " + secret},
		kinetl.Event{Kind: kinetl.EventReopened, Table: "o", Err: fmt.Errorf("commit: %w", &kinetl.RejectedError{
			Table: "o", Rows: []kinetl.RejectedRow{{Position: kinetl.At("5", 0), Reason: "can't store " + secret}},
		})},
		kinetl.Event{Kind: kinetl.EventIncident, Incident: &kinetl.Incident{Kind: kinetl.IncidentUndecodable, Detail: "value " + secret}},
	)
	if len(lines) != 3 || strings.Contains(strings.Join(lines, "\n"), secret) {
		t.Errorf("logged %d lines, want 3 without %s:\n%s", len(lines), secret, strings.Join(lines, "\n"))
	}
}

// An hour without the database is 120 lines and not 360, and tells how many retries
// there were.
func TestEventLogRepeatsARetryEvery30Seconds(t *testing.T) {
	var events []kinetl.Event
	for i := range 61 {
		events = append(events, kinetl.Event{
			Kind: kinetl.EventRetrying, At: logStart.Add(time.Duration(i) * time.Second), Table: "o", Reason: "committing",
			Err: fmt.Errorf("request %d failed", i),
		})
	}
	events = append(events, kinetl.Event{Kind: kinetl.EventRetrying, At: logStart.Add(time.Minute), Table: "other", Reason: "committing"})
	got := logged(slog.LevelInfo, events...)
	want := []string{
		`level=WARN msg=retrying table=o reason=committing err="request 0 failed"`,
		`level=WARN msg=retrying table=o reason=committing not_logged=29 err="request 30 failed"`,
		`level=WARN msg=retrying table=o reason=committing not_logged=29 err="request 60 failed"`,
		`level=WARN msg=retrying table=other reason=committing`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEventLogFromManyGoroutines(t *testing.T) {
	var out bytes.Buffer
	observe := logEvents(slog.New(slog.NewTextHandler(&out, nil)))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				observe(kinetl.Event{Kind: kinetl.EventRetrying, At: logStart, Table: "o", Reason: "committing"})
			}
		})
	}
	wg.Wait()
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("logged %d lines, want 1", n)
	}
}
