package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/lease"
)

// kclPrefix begins the ids of workers that are none of kinetl's.
const kclPrefix = "kcl-"

const kclFailover = 10 * time.Second

// kcl is a worker of KCL 2 on the same leases, as a description of its protocol has it:
// it takes and steals, renews, reads what it holds and checkpoints, makes the children's
// leases at the end of a shard, and deletes finished ones. It knows nothing of tables,
// watermarks and incidents, and keeps whatever else is in a row.
type kcl struct {
	w     *world
	id    string
	rng   *rand.Rand
	chaos *chaos
	seen  map[string]kclSight
	held  map[string]lease.Lease
	at    map[string]kinetl.Position // through which it has read what it holds
}

// kclSight is a row's counter, and when it was seen to change.
type kclSight struct {
	counter int64
	at      time.Time
}

// startKCL starts such a process. Its end is a kill: KCL gives no lease back.
func (w *world) startKCL() {
	w.count++
	ctx, cancel := context.WithCancel(context.Background())
	k := &kcl{
		w: w, id: fmt.Sprint(kclPrefix, w.count), rng: rand.New(rand.NewPCG(w.rng.Uint64(), 2)), chaos: newChaos(w.rng, 1),
		seen: map[string]kclSight{}, held: map[string]lease.Lease{}, at: map[string]kinetl.Position{},
	}
	worker := &worker{chaos: k.chaos, stop: cancel, done: make(chan error, 1)}
	w.workers = append(w.workers, worker)
	w.all.Go(func() {
		k.run(ctx)
		worker.done <- nil
	})
}

func (k *kcl) run(ctx context.Context) {
	var renewed, took, cleaned time.Time
	for k.chaos.wait(ctx, time.Second) == nil && !k.chaos.isDead() {
		k.chaos.stall()
		if time.Since(renewed) >= kclFailover/3 {
			renewed = time.Now()
			for _, key := range k.keys() {
				k.write(key, func(*lease.Lease) {})
			}
		}
		if time.Since(took) >= 2*kclFailover {
			took = time.Now()
			k.take()
		}
		if time.Since(cleaned) >= 30*time.Second {
			cleaned = time.Now()
			k.clean()
		}
		for _, key := range k.keys() {
			k.read(key)
		}
	}
}

func (k *kcl) keys() []string {
	var out []string
	for key := range k.held {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// write changes a lease that this worker holds, or finds that it does not any more.
func (k *kcl) write(key string, change func(*lease.Lease)) bool {
	next := k.held[key]
	change(&next)
	got, err := k.w.leases.Update(context.Background(), k.held[key], next)
	if err != nil {
		delete(k.held, key)
		return false
	}
	k.holds(key, got)
	return true
}

// holds notes that a write of the lease got through.
func (k *kcl) holds(key string, l lease.Lease) {
	k.held[key] = l
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.w.kclHeld[key] = time.Now()
}

func (k *kcl) list() map[string]lease.Lease {
	all, _ := k.w.leases.List(context.Background())
	out := map[string]lease.Lease{}
	for _, l := range all {
		out[l.Key] = l
	}
	return out
}

// take is one round of taking and stealing.
func (k *kcl) take() {
	counts := map[string]int{k.id: 0}
	var available, old []lease.Lease
	open := 0
	rows := k.list()
	for key, l := range rows {
		s, known := k.seen[key]
		switch {
		case !known && l.Owner == "":
			s = kclSight{l.Counter, time.Time{}}
		case !known || s.counter != l.Counter:
			s = kclSight{l.Counter, time.Now()}
		}
		k.seen[key] = s
		if l.Ended() {
			continue
		}
		open++
		if age := time.Since(s.at); l.Owner == "" || age > kclFailover {
			available = append(available, l)
			if age > 3*kclFailover {
				old = append(old, l)
			}
			continue
		}
		counts[l.Owner]++
	}
	target := 1
	if len(counts) < open {
		target = (open + len(counts) - 1) / len(counts)
	}
	slices.SortFunc(available, func(a, b lease.Lease) int { return strings.Compare(a.Key, b.Key) })
	k.rng.Shuffle(len(available), func(i, j int) { available[i], available[j] = available[j], available[i] })
	need := max(0, target-counts[k.id])
	take := available[:min(need, len(available))]
	switch {
	case len(old) > 0:
		take = old
	case len(available) == 0 && need > 0:
		take = k.steal(rows, counts, target, need)
	}
	for _, l := range take {
		if got, err := k.w.leases.Update(context.Background(), l, l.TakenBy(k.id)); err == nil {
			k.at[l.Key] = kclStart(got)
			k.holds(l.Key, got)
		}
	}
}

func (k *kcl) steal(rows map[string]lease.Lease, counts map[string]int, target, need int) []lease.Lease {
	most := ""
	for worker, n := range counts {
		if worker != k.id && (most == "" || n > counts[most] || n == counts[most] && worker < most) {
			most = worker
		}
	}
	if n := counts[most]; n < target || n == target && need < 2 {
		return nil
	}
	for _, l := range rows {
		if l.Owner == most && !l.Ended() {
			return []lease.Lease{l}
		}
	}
	return nil
}

func kclStart(l lease.Lease) kinetl.Position {
	if lease.IsSentinel(l.Checkpoint) {
		return kinetl.Oldest
	}
	return kinetl.At(l.Checkpoint, l.Sub)
}

// read processes a page of a shard whose parents are finished, and checkpoints, though
// not each time.
func (k *kcl) read(key string) {
	rows := k.list()
	l := k.held[key]
	group := lease.Group(key)
	for _, p := range l.Parents {
		if parent, found := rows[group+p]; found && !parent.Ended() {
			return
		}
	}
	st, sh := k.w.shardOf(key)
	st.mu.Lock()
	info := sh.info
	var page []kinetl.Record
	for _, r := range sh.records {
		if r.Position() > k.at[key] && len(page) < 30 {
			page = append(page, r)
		}
	}
	st.mu.Unlock()
	k.w.readByKCL(page)
	if len(page) > 0 {
		k.at[key] = page[len(page)-1].Position()
	}
	switch {
	case len(page) == 0 && info.Closed:
		k.end(key, info, rows)
	case len(page) > 0 && k.rng.IntN(3) > 0:
		last := page[len(page)-1]
		k.write(key, func(l *lease.Lease) { l.Checkpoint, l.Sub, l.OwnerSwitches = last.Sequence, last.Sub, 0 })
	}
}

// end makes the children's leases, names them, and says SHARD_END. The child of a merge
// is made only while both parents have leases, or neither has.
func (k *kcl) end(key string, info kinetl.ShardInfo, rows map[string]lease.Lease) {
	st, _ := k.w.shardOf(key)
	st.mu.Lock()
	var children []kinetl.ShardInfo
	for _, sh := range st.shards {
		if slices.Contains(sh.info.Parents, info.ID.Shard) {
			children = append(children, sh.info)
		}
	}
	st.mu.Unlock()
	var names []string
	for _, c := range children {
		for _, p := range c.Parents {
			if _, leased := rows[kinetl.LeaseKey(c.ID.Sibling(p))]; !leased {
				return
			}
		}
		l := lease.Lease{Key: kinetl.LeaseKey(c.ID), Checkpoint: lease.TrimHorizon, Parents: slices.Sorted(slices.Values(c.Parents))}
		_ = k.w.leases.Create(context.Background(), l) // or it is there already
		names = append(names, c.ID.Shard)
	}
	slices.Sort(names)
	if k.write(key, func(l *lease.Lease) { l.Children = names }) &&
		k.write(key, func(l *lease.Lease) { l.Checkpoint, l.Sub, l.OwnerSwitches = lease.ShardEnd, 0, 0 }) {
		delete(k.held, key) // and no more renewed
	}
}

// clean deletes finished leases whose children have all progressed and whose parents
// are deleted.
func (k *kcl) clean() {
	rows := k.list()
	for key, l := range rows {
		gone := l.Ended() && len(l.Children) > 0
		for _, c := range l.Children {
			child, leased := rows[lease.Group(key)+c]
			gone = gone && leased && !lease.IsSentinel(child.Checkpoint)
		}
		for _, p := range l.Parents {
			_, leased := rows[lease.Group(key)+p]
			gone = gone && !leased
		}
		if gone {
			_ = k.w.leases.Delete(context.Background(), l)
		}
	}
}

// shardOf is the shard of a lease.
func (w *world) shardOf(key string) (*stream, *shard) {
	for _, st := range w.streams {
		st.mu.Lock()
		for _, sh := range st.shards {
			if kinetl.LeaseKey(sh.info.ID) == key {
				st.mu.Unlock()
				return st, sh
			}
		}
		st.mu.Unlock()
	}
	panic("no shard for lease " + key)
}

func (w *world) readByKCL(page []kinetl.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range page {
		w.elsewhere[idOf(r.Data)] = true
	}
}

func (w *world) wasReadByKCL(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.elsewhere[id]
}

// leftToKCL are the ids of records that a run with Once need not have waited for: of
// shards whose leases a worker of KCL has renewed in the run's sight and not long before
// its end, and of what descends from them.
func (w *world) leftToKCL(began time.Time) map[string]bool {
	const drain = 25 * time.Second // the longest, until which a run goes on that is done
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for _, st := range w.streams {
		st.mu.Lock()
		left := map[string]bool{} // by shard id; parents stand before their children
		for _, sh := range st.shards {
			at := w.kclHeld[kinetl.LeaseKey(sh.info.ID)]
			is := !at.Before(began) && time.Since(at) < kclFailover+drain
			for _, p := range sh.info.Parents {
				is = is || left[p]
			}
			if left[sh.info.ID.Shard] = is; !is {
				continue
			}
			for _, r := range sh.records {
				out[idOf(r.Data)] = true
			}
		}
		st.mu.Unlock()
	}
	return out
}
