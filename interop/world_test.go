//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

const (
	stream   = "orders"
	table    = "interop" // and application
	failover = 3 * time.Second
)

// world is a stream, a lease table, and what was put into the stream.
type world struct {
	t      *testing.T
	server *kinesistest.Server
	dynamo string
	folder string
	rng    *rand.Rand

	mu     sync.Mutex
	files  int
	put    []record
	perKey map[string]int
}

// record is a user record, and where it came to be.
type record struct {
	shard string
	at    kinetl.Position
	key   string
	n     int // among those of its key
}

func newWorld(t *testing.T, shards int, dynamo string) *world {
	t.Helper()
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	must(t, err)
	t.Cleanup(func() { server.Close() })
	must(t, server.CreateStream(stream, shards))
	return &world{
		t: t, server: server, dynamo: dynamo, folder: t.TempDir(),
		rng: rand.New(rand.NewPCG(1, 1)), perKey: map[string]int{},
	}
}

// number makes names of files unique.
func (w *world) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files++
	return w.files
}

// produce puts so many stream records; every third is an aggregate of four.
func (w *world) produce(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		key := fmt.Sprintf("key-%d", w.rng.IntN(80))
		count := 1
		if i%3 == 0 {
			count = 4
		}
		var users []kinesis.AggregateRecord
		for j := range count {
			text := fmt.Sprintf(`{"id":%d,"k":%q,"n":%d}`, len(w.put)+j, key, w.perKey[key]+j)
			users = append(users, kinesis.AggregateRecord{PartitionKey: key, Data: []byte(text)})
		}
		data := users[0].Data
		if count > 1 {
			data = kinesis.Aggregate(users)
		}
		shard, seq, err := w.server.Put(stream, key, data)
		if err != nil {
			panic(err) // the server is this process, and the stream is there
		}
		for j := range count {
			w.put = append(w.put, record{shard, kinetl.At(seq, uint64(j)), key, w.perKey[key]})
			w.perKey[key]++
		}
	}
}

// records are those that were put so far; a record's index is its id.
func (w *world) records() []record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put[:len(w.put):len(w.put)]
}

// in is how many of them are in each shard.
func (w *world) in() map[string]int {
	out := map[string]int{}
	for _, r := range w.records() {
		out[r.shard]++
	}
	return out
}

func (w *world) split(shard string) [2]string {
	w.t.Helper()
	children, err := w.server.Split(stream, shard)
	must(w.t, err)
	return children
}

// leases are the rows of the lease table; none while there is no table.
func (w *world) leases() []lease.Lease {
	store, err := dynamolease.OpenReader(w.t.Context(), dynamolease.Options{AWS: dynamotest.Config(w.dynamo), Table: table})
	if err != nil {
		return nil
	}
	leases, err := store.List(w.t.Context())
	must(w.t, err)
	return leases
}

// owners are the open leases of each worker, by the beginning of its id.
func (w *world) owners(workers ...string) map[string]int {
	out := map[string]int{}
	for _, l := range w.leases() {
		if l.Ended() {
			continue
		}
		i := slices.IndexFunc(workers, func(name string) bool { return strings.HasPrefix(l.Owner, name+"-") })
		switch {
		case i >= 0:
			out[workers[i]]++
		case l.Owner != "" && !l.Foreign:
			out["kinetl"]++
		default:
			out[""]++
		}
	}
	return out
}

// checkpointed reports whether the lease table says that all that was put is done.
func (w *world) checkpointed() bool {
	last := map[string]kinetl.Position{}
	for _, r := range w.records() {
		last[r.shard] = r.at
	}
	for _, l := range w.leases() {
		if l.Ended() || !lease.IsSentinel(l.Checkpoint) && kinetl.At(l.Checkpoint, l.Sub) >= last[l.Key] {
			delete(last, l.Key)
		}
	}
	return len(last) == 0
}

// until waits for something to come true.
func (w *world) until(what string, most time.Duration, is func() bool) {
	w.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(most)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("not within %v: %s; leases: %+v", most, what, w.leases())
		}
	}
}

// result is what a scenario came to.
type result struct {
	Scenario, Versions string
	Records            int // user records put
	KCL, Kinetl        int // reports, repeats included
	Gaps               int // records that nobody reported
	Repeats            int // reports of a record beyond the first
	Disorder           int // reports that came before one that they should have followed
	Note               string
	Took               time.Duration
}

// count compares what was reported with what was put.
func (w *world) count(rows []row, workers ...*kcl) (res result) {
	put := w.records()
	res.Records = len(put)
	reported := make([]int, len(put))
	order := newOrder()
	for _, r := range rows {
		have := put[r.id]
		if seq, _, _ := have.at.Sequence(); have.shard != r.shard || seq != r.seq {
			w.t.Errorf("kinetl says record %d is at %s %s, it is at %s %s", r.id, r.shard, r.seq, have.shard, have.at)
		}
		reported[r.id]++
		res.Kinetl++
		order.add(put[r.id])
	}
	res.Disorder += order.wrong
	for _, k := range workers {
		order := newOrder()
		for _, l := range k.said() {
			if l.Event == "begun" {
				delete(order.shards, l.Shard) // again from the checkpoint
			}
			if l.Event != "" {
				continue
			}
			var payload struct{ ID int }
			must(w.t, json.Unmarshal(l.Data, &payload))
			have := put[payload.ID]
			if have.shard != l.Shard || have.at != kinetl.At(l.Seq, l.Sub) {
				w.t.Errorf("KCL says record %d is at %s %s %d, it is at %s %s", payload.ID, l.Shard, l.Seq, l.Sub, have.shard, have.at)
			}
			reported[payload.ID]++
			res.KCL++
			order.add(have)
		}
		res.Disorder += order.wrong
	}
	for _, n := range reported {
		if n == 0 {
			res.Gaps++
		}
		res.Repeats += max(0, n-1)
	}
	return res
}

// order counts reports out of order: of a shard, and, where a key is reported for the
// first time, of the key across shards.
type order struct {
	shards map[string]kinetl.Position
	keys   map[string]int
	seen   map[record]bool
	wrong  int
}

func newOrder() *order {
	return &order{map[string]kinetl.Position{}, map[string]int{}, map[record]bool{}, 0}
}

func (o *order) add(r record) {
	bad := o.shards[r.shard] >= r.at
	o.shards[r.shard] = r.at
	if !o.seen[r] {
		o.seen[r] = true
		last, known := o.keys[r.key]
		bad = bad || known && r.n < last
		o.keys[r.key] = r.n
	}
	if bad {
		o.wrong++
	}
}

// clean fails the test unless every record was reported, in order, and no more often
// than may be.
func (res result) clean(t *testing.T, repeats int) {
	t.Helper()
	if res.Gaps > 0 || res.Disorder > 0 || res.Repeats > repeats {
		t.Errorf("%d gaps, %d out of order, %d repeats, want 0, 0 and at most %d", res.Gaps, res.Disorder, res.Repeats, repeats)
	}
}
