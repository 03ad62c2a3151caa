package httpapi

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kinetl/kinetl"
)

var update = flag.Bool("update", false, "write generated documents instead of comparing them")

const document = "../docs/metrics.md"

// TestDocument: docs/metrics.md says what the code does.
func TestDocument(t *testing.T) {
	want := render()
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is stale: go test ./httpapi -run TestDocument -update", document)
	}
}

func render() string {
	var b strings.Builder
	b.WriteString(`# Metrics

` + "`kinetl run --listen ADDRESS`" + ` serves them at ` + "`/metrics`" + ` in Prometheus' text format, beside
those of the Go runtime (` + "`go_*`" + `) and of the process (` + "`process_*`" + `). This file is made from
the code: ` + "`go test ./httpapi -run TestDocument -update`" + `.

Series of a shard end with the worker's lease on it. Rows and dead letters are
counted once they are durable, and stay when leases move.

| metric | type | labels | meaning | look when |
|---|---|---|---|---|
`)
	for _, m := range catalogue {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help, m.alert)
	}
	b.WriteString("\nValues of `reason`: " + strings.Join([]string{retryLeases, retryCommit, retryIncident, other}, ", ") +
		".\nValues of `cause`: " + strings.Join(causes, ", ") +
		".\nValues of `kind`: " + strings.Join(kinds(), ", ") + ".\n")
	return b.String()
}

func kinds() (out []string) {
	for _, k := range incidentKinds {
		out = append(out, string(k))
	}
	return out
}

// TestEveryMetricIsServed: nothing is documented that is not there, and names and
// helps are as Prometheus wants them.
func TestEveryMetricIsServed(t *testing.T) {
	s := New()
	id := kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", Shard: "shardId-000000000000"}
	for _, kind := range []kinetl.EventKind{
		kinetl.EventLeaseTaken, kinetl.EventOpened, kinetl.EventFetched, kinetl.EventCommitted, kinetl.EventSchema, kinetl.EventReopened,
	} {
		s.Observe(kinetl.Event{Kind: kind, Shard: id, Table: "orders"})
	}
	for _, m := range catalogue {
		if n, err := testutil.GatherAndCount(s.registry, m.name); err != nil || n == 0 {
			t.Errorf("%s has %d series: %v", m.name, n, err)
		}
	}
	problems, err := testutil.GatherAndLint(s.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "kinetl_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
