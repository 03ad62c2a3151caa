package httpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kinetl/kinetl"
)

// metric describes one metric. The registry and docs/metrics.md both come of it.
type metric struct {
	name   string
	kind   string // gauge, counter or histogram
	labels []string
	help   string
	alert  string // when to worry, for the documentation
	desc   *prometheus.Desc
}

func describe(kind, name string, labels []string, help, alert string) *metric {
	return &metric{name, kind, labels, help, alert, prometheus.NewDesc(name, help, labels, nil)}
}

var (
	perPipeline = []string{"pipeline"}
	perShard    = []string{"pipeline", "stream", "shard"}
	perTable    = []string{"pipeline", "stream", "table"}

	lagSeconds      = describe("gauge", "kinetl_lag_seconds", perShard, "How far the last read was behind the shard's tip.", "It grows for minutes: the reader does not keep up.")
	ageSeconds      = describe("gauge", "kinetl_position_age_seconds", perShard, "Time since the last commit of the shard, or since everything that it held was stored.", "Above a few minutes: the shard stands still, whatever its lag says.")
	readRecords     = describe("counter", "kinetl_read_records_total", perShard, "Records read, unpacked.", "")
	readBytes       = describe("counter", "kinetl_read_bytes_total", perShard, "Bytes of records read, partition keys included.", "")
	storedRows      = describe("counter", "kinetl_rows_total", perTable, "Rows that are durable in the table.", "")
	deadLetters     = describe("counter", "kinetl_dead_letters_total", perTable, "Records set aside that are durable in the table's dead letters.", "It increases: look at the reasons in the table of dead letters.")
	commitSeconds   = describe("histogram", "kinetl_commit_seconds", []string{"pipeline", "table"}, "How long the commit took that stored a part. A commit of several shards' parts counts once for each.", "A high quantile nears batch.age: the table is the bottleneck.")
	retriesTotal    = describe("counter", "kinetl_retries_total", []string{"pipeline", "reason"}, "Calls that failed and were repeated, by what was tried.", "It increases steadily.")
	reopenedTotal   = describe("counter", "kinetl_reopened_total", []string{"pipeline", "stream", "cause"}, "Times that reading of a shard began anew at the watermark, by the cause.", "It increases steadily.")
	schemaChanged   = describe("counter", "kinetl_schema_changes_total", []string{"pipeline", "table"}, "Changes of the table's columns.", "")
	leasesHeld      = describe("gauge", "kinetl_leases_held", perPipeline, "Leases that this worker holds.", "The sum over all workers is not the number of open shards.")
	leasesLostTotal = describe("counter", "kinetl_leases_lost_total", perPipeline, "Leases that another worker took, or that could not be renewed in time.", "It increases without a deployment: workers stall, or the lease store is slow.")
	incidentsOpen   = describe("gauge", "kinetl_incidents_open", []string{"pipeline", "kind"}, "Open incidents that this worker has told: shards that are halted until a person decides, and columns that values do not fit (column_capped).", "Above 0.")
)

// catalogue is all metrics of kinetl's own, in the order of the documentation.
var catalogue = []*metric{
	lagSeconds, ageSeconds, readRecords, readBytes, storedRows, deadLetters, commitSeconds,
	retriesTotal, reopenedTotal, schemaChanged, leasesHeld, leasesLostTotal, incidentsOpen,
}

// commitBuckets are seconds: an embedded table commits in milliseconds, a
// warehouse may take most of a minute.
var commitBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

var incidentKinds = []kinetl.IncidentKind{
	kinetl.IncidentExpired, kinetl.IncidentOtherSink, kinetl.IncidentNoWatermark, kinetl.IncidentUndecodable, kinetl.IncidentColumnCapped,
	kinetl.IncidentCheckpoint, kinetl.IncidentOtherStream, kinetl.IncidentGone, kinetl.IncidentUnreadable, other,
}

// collector turns the state into metrics when they are asked for, because the age
// of a position is one that grows while nothing happens.
type collector struct{ server *Server }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range catalogue {
		if m != commitSeconds {
			ch <- m.desc
		}
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	// Gathered first: the channel may be full, and Observe must not wait for it.
	for _, m := range c.server.gather(time.Now()) {
		ch <- m
	}
}

func (s *Server) gather(now time.Time) []prometheus.Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []prometheus.Metric
	for name, st := range s.pipelines {
		st.gather(now, func(m *metric, value float64, labels ...string) {
			kind := prometheus.GaugeValue
			if m.kind == "counter" {
				kind = prometheus.CounterValue
			}
			out = append(out, prometheus.MustNewConstMetric(m.desc, kind, value, append([]string{name}, labels...)...))
		})
	}
	return out
}

// gather adds up one pipeline. The label of the pipeline itself is left to add.
func (s *state) gather(now time.Time, add func(m *metric, value float64, labels ...string)) {
	for key, sh := range s.byName() {
		if sh.fetched {
			add(lagSeconds, sh.lag.Seconds(), key.stream, key.shard)
		}
		add(ageSeconds, max(0, now.Sub(sh.current).Seconds()), key.stream, key.shard)
		add(readRecords, float64(sh.records), key.stream, key.shard)
		add(readBytes, float64(sh.bytes), key.stream, key.shard)
	}
	for key, n := range s.rows {
		add(storedRows, float64(n), key.stream, key.table)
		add(deadLetters, float64(s.dead[key]), key.stream, key.table)
	}
	for reason, n := range s.retries {
		add(retriesTotal, float64(n), reason)
	}
	for key, n := range s.reopened {
		add(reopenedTotal, float64(n), key.stream, key.cause)
	}
	for table, n := range s.schemaChanges {
		add(schemaChanged, float64(n), table)
	}
	add(leasesHeld, float64(len(s.shards)))
	add(leasesLostTotal, float64(s.leasesLost))
	open := map[kinetl.IncidentKind]int{}
	for _, sh := range s.shards {
		open[sh.incident]++
	}
	for _, n := range s.notices {
		open[n.kind]++
	}
	for _, kind := range incidentKinds {
		add(incidentsOpen, float64(open[kind]), string(kind))
	}
}

// byName joins shards that have the same labels: streams of two accounts may share
// a name, and so do a deleted stream and its successor. Series with equal labels
// would make the whole scrape fail.
func (s *state) byName() map[shardName]shard {
	out := make(map[shardName]shard, len(s.shards))
	for id, sh := range s.shards {
		key := shardName{id.StreamName(), id.Shard}
		sum, ok := out[key]
		if !ok {
			out[key] = *sh
			continue
		}
		sum.records += sh.records
		sum.bytes += sh.bytes
		sum.lag = max(sum.lag, sh.lag)
		sum.fetched = sum.fetched || sh.fetched
		if sh.current.Before(sum.current) {
			sum.current = sh.current
		}
		out[key] = sum
	}
	return out
}

type shardName struct{ stream, shard string }
