package kinetl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
	"go.uber.org/goleak"
)

// Goroutines inside a synctest bubble must end with it; this looks for those outside.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shardOf(stream string, n int) kinetl.ShardID {
	return kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/" + stream, Created: 1700000000, Shard: fmt.Sprintf("shardId-%012d", n)}
}

// script is a Source that holds what a test puts into it.
type script struct {
	mu      sync.Mutex
	shards  []*scriptShard
	seq     int
	page    int           // most records of a page
	pace    time.Duration // between the pages of a shard
	fetches int           // calls of Next
	resumes map[kinetl.ShardID][]kinetl.Resume
	fault   func(call string, shard kinetl.ShardID) error // call: "list" or "next"
}

type scriptShard struct {
	info           kinetl.ShardInfo
	opened, closed time.Time
	records        []kinetl.Record
	blanks         int  // empty pages that are behind the tip, before the next records
	hidden         bool // left the listing
}

// newScript is a stream with so many shards.
func newScript(shards int) *script {
	s := &script{page: 10, pace: 200 * time.Millisecond, resumes: map[kinetl.ShardID][]kinetl.Resume{}}
	for range shards {
		s.add("orders")
	}
	return s
}

func (s *script) add(stream string, parents ...string) int {
	n := len(s.shards)
	s.shards = append(s.shards, &scriptShard{info: kinetl.ShardInfo{ID: shardOf(stream, n), Parents: parents}, opened: time.Now()})
	return n
}

// put adds records {"id":ID} to a shard, now.
func (s *script) put(shard int, ids ...int) {
	for _, id := range ids {
		s.putText(shard, fmt.Sprintf(`{"id":%d}`, id))
	}
}

func (s *script) putText(shard int, payloads ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range payloads {
		s.seq++
		sh := s.shards[shard]
		sh.records = append(sh.records, kinetl.Record{Sequence: strconv.Itoa(s.seq), PartitionKey: "k", Arrived: time.Now(), Data: []byte(p)})
	}
}

// split closes a shard and opens two children.
func (s *script) split(shard int) (left, right int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shards[shard]
	s.seq++
	sh.info.Closed, sh.info.LastSeq, sh.closed = true, strconv.Itoa(s.seq), time.Now()
	stream := sh.info.ID.StreamName()
	return s.add(stream, sh.info.ID.Shard), s.add(stream, sh.info.ID.Shard)
}

func (s *script) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *script) fail(call string, shard kinetl.ShardID) error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(call, shard)
}

func (s *script) Shards(_ context.Context, openAt time.Time) (kinetl.Listing, error) {
	if err := s.fail("list", kinetl.ShardID{}); err != nil {
		return kinetl.Listing{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := kinetl.Listing{At: time.Now()}
	for _, sh := range s.shards {
		open := openAt.IsZero() || !sh.opened.After(openAt) && (sh.closed.IsZero() || sh.closed.After(openAt))
		if open && !sh.hidden {
			out.Shards = append(out.Shards, sh.info)
		}
	}
	return out, nil
}

func (s *script) Read(_ context.Context, id kinetl.ShardID, from kinetl.Resume) (kinetl.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumes[id] = append(s.resumes[id], from)
	for _, sh := range s.shards {
		if sh.info.ID != id {
			continue
		}
		next := 0
		since, isInstant := from.After.Instant()
		for next < len(sh.records) {
			r := &sh.records[next]
			if isInstant && !r.Arrived.Before(since) || !isInstant && r.Position() > from.After {
				break
			}
			next++
		}
		return &scriptReader{s, sh, next}, nil
	}
	return nil, &kinetl.GoneError{Shard: id}
}

type scriptReader struct {
	*script
	shard *scriptShard
	next  int
}

func (r *scriptReader) Ready(ctx context.Context) (int64, error) {
	t := time.NewTimer(r.pace)
	defer t.Stop()
	select {
	case <-t.C:
		return 100, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (r *scriptReader) Next(ctx context.Context) (kinetl.Fetch, error) {
	if err := ctx.Err(); err != nil {
		return kinetl.Fetch{}, err
	}
	if err := r.fail("next", r.shard.info.ID); err != nil {
		return kinetl.Fetch{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetches++
	all := r.shard.records
	switch {
	case r.next == len(all) && r.shard.info.Closed:
		return kinetl.Fetch{}, io.EOF
	case r.shard.blanks > 0:
		r.shard.blanks--
		return kinetl.Fetch{Lag: time.Hour}, nil
	}
	var f kinetl.Fetch
	for r.next < len(all) && len(f.Records) < r.page {
		f.Records = append(f.Records, all[r.next])
		f.Bytes += int64(len(all[r.next].Data))
		r.next++
	}
	if r.next == len(all) {
		f.CaughtUp = time.Now()
	} else {
		f.Lag = time.Second
	}
	return f, nil
}

func (r *scriptReader) Close() error { return nil }

// rig is a stream, a lease table and a set of tables, and the workers on them.
type rig struct {
	*script
	t      *testing.T
	leases *lease.Memory
	memory *desttest.Memory

	mu     sync.Mutex
	events []kinetl.Event
}

func newRig(t *testing.T, shards int) *rig {
	return &rig{script: newScript(shards), t: t, leases: &lease.Memory{}, memory: desttest.NewMemory(desttest.MemoryOptions{})}
}

// worker is a pipeline that a test may still change before it runs.
func (r *rig) worker(name string) *kinetl.Pipeline {
	return &kinetl.Pipeline{
		Consumer: kinetl.Consumer{Source: r.script, Leases: r.leases, Config: kinetl.ConsumerConfig{
			Worker: name,
			Observe: func(e kinetl.Event) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.events = append(r.events, e)
			},
		}},
		NewDecoder: codec.NewJSON, Destination: r.memory,
		Config: kinetl.PipelineConfig{Metadata: kinetl.MetadataNone, Batch: kinetl.Batch{Age: time.Second}},
	}
}

// running is a worker that runs.
type running struct {
	stop context.CancelFunc
	done chan error
}

func (r *rig) start(p *kinetl.Pipeline) *running {
	ctx, cancel := context.WithCancel(r.t.Context())
	w := &running{cancel, make(chan error, 1)}
	go func() { w.done <- p.Run(ctx) }()
	return w
}

// drain asks the worker to stop and waits for it.
func (w *running) drain(t *testing.T) {
	t.Helper()
	w.stop()
	if err := <-w.done; err != nil {
		t.Errorf("a worker that was asked to stop returned: %v", err)
	}
}

// once runs a worker until everything is read.
func (r *rig) once(p *kinetl.Pipeline) error {
	r.t.Helper()
	p.Consumer.Config.Once = true
	return r.end(r.start(p))
}

// end waits for a worker to end by itself, for at most an hour.
func (r *rig) end(w *running) error {
	r.t.Helper()
	defer w.stop()
	select {
	case err := <-w.done:
		return err
	case <-time.After(time.Hour):
		w.stop()
		<-w.done
		r.t.Error("R25: a run with Once did not end within an hour")
		return nil
	}
}

func (r *rig) wantEnd(w *running) {
	r.t.Helper()
	if err := r.end(w); err != nil {
		r.t.Errorf("a run with Once ended with %v", err)
	}
}

// until waits for a condition, for at most ten minutes of the bubble's time.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited ten minutes until %s", what)
		}
	}
}

// ids is what a table holds, in the order of storing.
func (r *rig) ids(table string) []int {
	out := []int{}
	for _, row := range r.memory.Read(table).Rows {
		id, err := strconv.Atoi(row.Cells["id"])
		if err != nil {
			r.t.Errorf("a row without id: %v", row.Cells)
		}
		out = append(out, id)
	}
	return out
}

// has reports whether the table orders holds n rows.
func (r *rig) has(n int) func() bool {
	return func() bool { return len(r.memory.Read("orders").Rows) >= n }
}

// wantOrders checks that the table holds these ids, each once.
func (r *rig) wantOrders(want ...int) {
	r.t.Helper()
	times := map[int]int{}
	for _, id := range r.ids("orders") {
		times[id]++
	}
	for _, id := range want {
		if times[id] != 1 {
			r.t.Errorf("record %d is stored %d times", id, times[id])
		}
		delete(times, id)
	}
	if len(times) > 0 {
		r.t.Errorf("records stored that should not be, and how often: %v", times)
	}
}

func (r *rig) count(kind kinetl.EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// row is a shard's lease.
func (r *rig) row(shard int) lease.Lease {
	l, _, _ := r.leases.Get(r.t.Context(), kinetl.LeaseKey(r.shards[shard].info.ID))
	return l
}

// shared reports whether two workers hold a shard each.
func (r *rig) shared() bool {
	a, b := r.row(0).Owner, r.row(1).Owner
	return a != b && a != "" && b != ""
}

func span(from, to int) []int {
	var out []int
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

// dice are thrown from many goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 1))} }

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

var errInjected = errors.New("injected fault")

// flaky is one worker's connection to the lease table. Its hook decides the fate of
// each call: "list", "get", "create", "update" or "signal". One call at a time is decided.
type flaky struct {
	lease.Store
	mu   sync.Mutex
	hook func(call string, l lease.Lease) fate
}

// fate is what becomes of a call. The zero value is a call that goes well.
type fate struct {
	hang  time.Duration // before it has an effect
	deaf  bool          // it hangs although its caller gives up
	err   error
	after bool // the error comes after the effect: the answer is lost
}

// bad is a call that fails if it is so.
func bad(failing bool) fate {
	if failing {
		return fate{err: errInjected}
	}
	return fate{}
}

func (f *flaky) call(ctx context.Context, call string, l lease.Lease, do func() error) error {
	f.mu.Lock()
	fate := f.hook(call, l)
	f.mu.Unlock()
	if fate.deaf {
		time.Sleep(fate.hang)
	} else if err := wait(ctx, fate.hang); err != nil {
		return err
	}
	if fate.err != nil && !fate.after {
		return fate.err
	}
	if err := do(); err != nil {
		return err
	}
	return fate.err
}

func (f *flaky) List(ctx context.Context) (out []lease.Lease, err error) {
	err = f.call(ctx, "list", lease.Lease{}, func() (err error) { out, err = f.Store.List(ctx); return err })
	return out, err
}

func (f *flaky) Get(ctx context.Context, key string) (l lease.Lease, found bool, err error) {
	err = f.call(ctx, "get", lease.Lease{Key: key}, func() (err error) { l, found, err = f.Store.Get(ctx, key); return err })
	return l, found, err
}

func (f *flaky) Create(ctx context.Context, l lease.Lease) error {
	return f.call(ctx, "create", l, func() error { return f.Store.Create(ctx, l) })
}

func (f *flaky) Update(ctx context.Context, old, next lease.Lease) (got lease.Lease, err error) {
	err = f.call(ctx, "update", next, func() (err error) { got, err = f.Store.Update(ctx, old, next); return err })
	return got, err
}

func (f *flaky) Signal(ctx context.Context, key, signal string) error {
	return f.call(ctx, "signal", lease.Lease{Key: key, Signal: signal}, func() error { return f.Store.Signal(ctx, key, signal) })
}

// wait is a call that hangs, until its context ends or d has passed.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
