package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

var trials = flag.Int("trials", 0, "how often TestTrials moves shards in each way")

const (
	trialShards = 8
	trialFleets = 4 // at work side by side: a trial is mostly waiting
)

// bars are the longest that shards may take to move.
var bars = map[string]time.Duration{
	"kill": 15 * time.Second, "deploy": 2 * time.Second, "join": 10 * time.Second, "start": 10 * time.Second,
}

// TestTrials measures how long shards take to move between processes at the default
// settings. Each fleet of two or three workers has eight shards, which get records all
// the time. Again and again one of its workers
//
//   - is killed. Until each of its shards is owned and read by another.
//   - joins. From the start of its process until it owns its share, shards by workers
//     rounded down, and reads that.
//   - is stopped by SIGTERM. Until each of its shards is owned and read by another.
//   - starts, at the same time as all the others, when none is there. Until each owns its
//     share, and reads it.
//
// Owned is what the lease table says. A shard is read from the first GetRecords call on
// it after its new owner asked for an iterator; that call brings everything from the
// last commit on. Rows of records that are put to each shard as the trial begins are
// visible later, by what a batch waits for more; that has no bar.
func TestTrials(t *testing.T) {
	if *trials == 0 {
		t.Skip("run by make trials: a round takes a minute")
	}
	if raceDetector {
		t.Skip("starts processes, which the race detector does not see into, and measures")
	}
	s := newScene(t, buildProgram(t))
	endpoint := dynamotest.Dynalite(t)
	openings := openingsOf(s.server)
	all := &figures{}
	t.Run("fleets", func(t *testing.T) {
		for i := range min(*trials, trialFleets) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				f := newTrialFleet(t, s, endpoint, openings, i)
				f.start(all, 2+i%2)
				for n := i; n < *trials; n += trialFleets {
					f.round(all)
				}
				f.finish()
			})
		}
	})
	for _, way := range []string{"kill", "deploy", "join", "start"} {
		moved, visible := all.of(way, false), all.of(way, true)
		if len(moved) == 0 {
			continue // the fleets said why
		}
		worst := moved[len(moved)-1]
		t.Logf("%-6s %2d trials: owned and read after %5.2f s (median), %5.2f s (max), bar %2.0f s; rows visible after %5.2f s (median), %5.2f s (max)",
			way, len(moved), moved[len(moved)/2].Seconds(), worst.Seconds(), bars[way].Seconds(),
			visible[len(visible)/2].Seconds(), visible[len(visible)-1].Seconds())
		if worst > bars[way] {
			t.Errorf("%s: a trial took %s, and %s is the bar", way, worst, bars[way])
		}
	}
}

// figures are what the trials took.
type figures struct {
	mu  sync.Mutex
	all []figure
}

type figure struct {
	way            string
	moved, visible time.Duration
}

func (f *figures) add(one figure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
}

// of is the figures of a way, from the shortest on.
func (f *figures) of(way string, visible bool) (out []time.Duration) {
	for _, one := range f.all {
		switch {
		case one.way != way:
		case visible:
			out = append(out, one.visible)
		default:
			out = append(out, one.moved)
		}
	}
	slices.Sort(out)
	return out
}

// openings notes when shards were opened last, and whether they were read after it.
type openings struct {
	mu    sync.Mutex
	known map[[2]string]opening // by stream and shard
}

type opening struct {
	opened time.Time
	read   bool
}

// openingsOf listens to the server's calls.
func openingsOf(server *kinesistest.Server) *openings {
	o := &openings{known: map[[2]string]opening{}}
	server.Fault(kinesistest.Fault{Match: func(c *kinesistest.Call) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		key := [2]string{c.Stream, c.Shard}
		switch {
		case c.Op == "GetShardIterator":
			o.known[key] = opening{opened: c.At}
		case c.Op == "GetRecords":
			o.known[key] = opening{opened: o.known[key].opened, read: true}
		}
		return false
	}})
	return o
}

// read reports whether a shard was opened after began, and then read.
func (o *openings) read(stream, shard string, began time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.known[[2]string{stream, shard}]
	return one.opened.After(began) && one.read
}

// trialFleet is workers of one application, which has a stream and a table of its own.
type trialFleet struct {
	*scene
	t         *testing.T
	name      string
	documents string
	rng       *rand.Rand
	leases    *dynamolease.Store
	rows      *pgx.Conn
	openings  *openings
	shards    []string
	workers   []*background

	mu  sync.Mutex
	put int // records, numbered from 0 on

	end func() // of the putting
}

// Nothing but places and names is said: all else is as a user has it who says nothing.
const trialDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: %[1]s }
spec: { connector: kinesis, config: { endpoint: %[2]q, streams: [%[1]s] } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: warehouse }
spec: { connector: postgres, config: { url: { env: FLEET_DSN } } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: %[1]s }
spec:
  source: { name: %[1]s }
  destination: { name: warehouse }
  leases: { store: dynamodb, aws: { endpoint: %[3]q } }
`

func newTrialFleet(t *testing.T, s *scene, endpoint string, o *openings, i int) *trialFleet {
	f := &trialFleet{
		scene: s, t: t, name: fmt.Sprint("trials", i), documents: filepath.Join(t.TempDir(), "pipeline.yaml"),
		rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i))), openings: o,
	}
	s.createStreams(t, trialShards, f.name)
	writeFile(t, f.documents, fmt.Sprintf(trialDocuments, f.name, s.server.URL(), endpoint))
	var err error
	if f.shards, err = s.server.Shards(f.name); err != nil {
		t.Fatal(err)
	}
	if f.leases, err = dynamolease.Open(t.Context(), dynamolease.Options{AWS: dynamotest.Config(endpoint), Table: f.name}); err != nil {
		t.Fatal(err)
	}
	if f.rows, err = pgx.Connect(t.Context(), s.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.rows.Close(context.Background()) })
	ctx, stop := context.WithCancel(t.Context())
	var producing sync.WaitGroup
	producing.Go(func() { f.produce(ctx) })
	f.end = sync.OnceFunc(func() { stop(); producing.Wait() })
	t.Cleanup(f.end)
	return f
}

// produce puts a record to a shard, one after the other, 50 times a second.
func (f *trialFleet) produce(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.record(f.shards[i%len(f.shards)])
		}
	}
}

// record puts the next record to a shard, and returns its number.
func (f *trialFleet) record(shard string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.server.PutShard(f.name, shard, "key", fmt.Appendf(nil, `{"n":%d}`, f.put)); err != nil {
		panic(err)
	}
	f.put++
	return f.put - 1
}

// round kills a worker, lets one join, stops one, lets one join again, and stops and starts
// all.
func (f *trialFleet) round(all *figures) {
	f.lose(all, "kill", func(w *background) { w.kill(f.t) })
	f.gain(all)
	f.lose(all, "deploy", func(w *background) { _ = w.cmd.Process.Signal(syscall.SIGTERM) })
	f.gain(all)
	n := len(f.workers)
	for _, w := range f.workers {
		w.stop(f.t, syscall.SIGTERM)
	}
	f.workers = nil
	f.pause()
	f.start(all, n)
}

// lose ends a worker and measures until others have its shards.
func (f *trialFleet) lose(all *figures, way string, end func(*background)) {
	f.t.Helper()
	f.until("all have their shares", f.balanced)
	f.pause()
	i := f.rng.IntN(len(f.workers))
	w := f.workers[i]
	lost := f.held()[w]
	f.workers = slices.Delete(f.workers, i, i+1)
	f.measure(all, way, func() { end(w) }, func(held map[*background][]string) (moved []string, ok bool) {
		n := 0
		for _, shards := range held {
			n += len(shards)
		}
		return lost, n == trialShards
	})
	if way == "deploy" {
		if err := <-w.done; err != nil {
			f.t.Errorf("a worker that was asked to stop: %v\n%s", err, tail(w.String()))
		}
	}
}

// gain starts a worker and measures until it has its share.
func (f *trialFleet) gain(all *figures) {
	f.t.Helper()
	f.pause()
	f.measure(all, "join", f.join, func(held map[*background][]string) (moved []string, ok bool) {
		moved = held[f.workers[len(f.workers)-1]]
		return moved, len(moved) >= trialShards/len(f.workers)
	})
}

// start starts so many workers at once, where there are none, and measures until each has
// its share.
func (f *trialFleet) start(all *figures, n int) {
	f.t.Helper()
	start := func() {
		for range n {
			f.join()
		}
	}
	f.measure(all, "start", start, func(held map[*background][]string) (moved []string, ok bool) {
		return f.shards, f.balanced(held)
	})
}

func (f *trialFleet) join() {
	f.workers = append(f.workers, launch(f.t, f.command(f.documents), nil))
}

// measure does something, and waits until the workers hold what they should after it
// and each of the shards that moved was read.
func (f *trialFleet) measure(all *figures, way string, do func(), should func(held map[*background][]string) (moved []string, ok bool)) {
	f.t.Helper()
	began := time.Now()
	do()
	var numbers []int
	for _, shard := range f.shards {
		numbers = append(numbers, f.record(shard))
	}
	f.until("the shards have moved after a "+way, func(held map[*background][]string) bool {
		moved, ok := should(held)
		return ok && !slices.ContainsFunc(moved, func(shard string) bool { return !f.openings.read(f.name, shard, began) })
	})
	one := figure{way: way, moved: time.Since(began)}
	for visible := 0; visible < len(numbers); {
		<-time.After(50 * time.Millisecond)
		if err := f.rows.QueryRow(f.t.Context(), "SELECT count(*) FROM "+f.name+" WHERE n = ANY($1)", numbers).Scan(&visible); err != nil {
			f.t.Fatal(err)
		}
		if time.Since(began) > scriptPatience {
			f.t.Fatalf("after a %s, %d of %d records are visible", way, visible, len(numbers))
		}
	}
	one.visible = time.Since(began)
	f.t.Logf("%-6s %5.2f s, visible %5.2f s", way, one.moved.Seconds(), one.visible.Seconds())
	all.add(one)
}

// held is which shards each worker that lives holds, as the lease table says.
func (f *trialFleet) held() map[*background][]string {
	f.t.Helper()
	leases, err := f.leases.List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	held := map[*background][]string{}
	for _, l := range leases {
		key, err := lease.ParseKey(l.Key)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, w := range f.workers {
			if strings.Contains(l.Owner, fmt.Sprintf("-%d-", w.cmd.Process.Pid)) {
				held[w] = append(held[w], key.Shard)
			}
		}
	}
	return held
}

func (f *trialFleet) balanced(held map[*background][]string) bool {
	n := 0
	for _, w := range f.workers {
		if len(held[w]) < trialShards/len(f.workers) {
			return false
		}
		n += len(held[w])
	}
	return n == trialShards
}

// until looks at the lease table until something holds.
func (f *trialFleet) until(what string, holds func(held map[*background][]string) bool) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(scriptPatience); ; <-tick.C {
		held := f.held()
		if holds(held) {
			return
		}
		if time.Now().After(deadline) {
			for w, shards := range held {
				f.t.Logf("process %d holds %v", w.cmd.Process.Pid, shards)
			}
			f.t.Fatalf("waited %s in vain until %s", scriptPatience, what)
		}
	}
}

// pause lets the next trial begin at any moment of what workers do again and again.
func (f *trialFleet) pause() {
	<-time.After(time.Duration(f.rng.IntN(5000)) * time.Millisecond)
}

// finish stops the fleet. All its moves have lost nothing and repeated nothing.
func (f *trialFleet) finish() {
	f.end()
	f.scene.finish(f.t, f.documents, f.workers...)
	var rows, numbers int
	if err := f.rows.QueryRow(f.t.Context(), "SELECT count(*), count(DISTINCT n) FROM "+f.name).Scan(&rows, &numbers); err != nil {
		f.t.Fatal(err)
	}
	if rows != f.put || numbers != f.put {
		f.t.Errorf("of %d records the table has %d rows, %d of them different", f.put, rows, numbers)
	}
}
