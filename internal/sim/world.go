package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/desttest"
	"github.com/kinetl/kinetl/lease"
)

const tableName = "sim"

// mutation is a rule left out on purpose, to see that the checks notice.
type mutation string

const (
	none             mutation = ""
	noFence          mutation = "no fence"
	resumeFromLease  mutation = "resume from the lease"
	endBeforeDurable mutation = "shard end before durability"
	commitCreatesRow mutation = "Commit creating a missing row"
	noSchemaCheck    mutation = "no schema check at commit"
)

// world is one simulated run.
type world struct {
	rng     *rand.Rand
	mutant  mutation
	stream  *stream
	memory  *desttest.Memory
	leases  lease.Memory
	changes kinetl.TypeChanges
	sent    *sent
	workers []*worker
	count   int
	all     sync.WaitGroup // every goroutine of the world

	mu     sync.Mutex
	faults []string // what was seen to be wrong while it ran
}

// worker is one process.
type worker struct {
	chaos *chaos
	stop  context.CancelFunc
	done  chan error
}

// run simulates one seed and returns what was wrong with the outcome.
func run(seed uint64, mutant mutation) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		rng: rng, mutant: mutant, stream: newStream(1 + rng.IntN(4)),
		memory: desttest.NewMemory(desttest.MemoryOptions{}), sent: newSent(),
		changes: kinetl.TypeChanges(rng.IntN(2)),
	}
	w.storm()
	wrong := w.calm()
	w.all.Wait()
	return append(wrong, w.faults...)
}

// storm lets everything happen at random for a while.
func (w *world) storm() {
	end := time.Now().Add(time.Duration(20+w.rng.IntN(100)) * time.Second)
	w.start(1)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		switch n := w.rng.IntN(100); {
		case n < 70:
			w.put(1 + w.rng.IntN(30))
		case n < 76:
			w.stream.split(w.rng)
		case n < 81:
			w.stream.merge(w.rng)
		case n < 88 && w.count < 12:
			w.start(1)
		case n < 92:
			w.end(func(k *worker) { k.chaos.kill() })
		case n < 95:
			w.end(func(*worker) {})
		case n < 98 && len(w.workers) > 0:
			w.workers[w.rng.IntN(len(w.workers))].chaos.blindFor(time.Duration(w.rng.IntN(30)) * time.Second)
		case n < 99:
			w.memory.AddColumn(tableName, kinetl.Column{Name: fmt.Sprintf("theirs%d", w.rng.IntN(5)), Class: kinetl.Text, Cap: true})
		}
	}
}

// end stops a random worker, killed or asked politely.
func (w *world) end(how func(*worker)) {
	if len(w.workers) == 0 {
		return
	}
	i := w.rng.IntN(len(w.workers))
	k := w.workers[i]
	how(k)
	k.stop()
	w.workers = append(w.workers[:i], w.workers[i+1:]...)
}

// calm stops all workers, lets one without faults read everything, and checks.
func (w *world) calm() []string {
	for _, k := range w.workers {
		k.stop()
		if err := <-k.done; err != nil && !errors.Is(err, errService) {
			w.report("a worker failed: %v", err)
		}
	}
	w.workers = nil
	k := w.worker(0, true)
	select {
	case err := <-k.done:
		if err != nil {
			w.report("the last worker failed: %v", err)
		}
	case <-time.After(30 * time.Minute):
		w.report("the last worker did not finish in 30 minutes")
		k.chaos.kill()
		k.stop()
		<-k.done
	}
	return w.check()
}

func (w *world) start(level float64) {
	w.workers = append(w.workers, w.worker(level, false))
}

// worker starts a process.
func (w *world) worker(level float64, once bool) *worker {
	w.count++
	ctx, cancel := context.WithCancel(context.Background())
	k := &worker{chaos: newChaos(w.rng, level), stop: cancel, done: make(chan error, 1)}
	handle := w.memory.Handle(desttest.MemoryOptions{
		Fault: k.chaos.fault, NoFence: w.mutant == noFence, NoSchemaCheck: w.mutant == noSchemaCheck,
	})
	p := &kinetl.Pipeline{
		Consumer: kinetl.Consumer{
			Source: &source{stream: w.stream, chaos: k.chaos, onRead: w.checkParents},
			Leases: &leases{store: &w.leases, chaos: k.chaos},
			Config: kinetl.ConsumerConfig{Worker: fmt.Sprintf("worker-%d", w.count), Once: once, Observe: observe},
		},
		NewDecoder:  codec.NewJSON,
		Destination: mutate(w, handle, k.chaos),
		Config: kinetl.PipelineConfig{
			Table: func(kinetl.ShardID) string { return tableName }, TypeChanges: w.changes,
			Batch:  kinetl.Batch{Rows: 1 + w.rng.IntN(50), Age: time.Duration(1+w.rng.IntN(5000)) * time.Millisecond},
			Memory: int64(4000 + w.rng.IntN(60000)),
		},
	}
	w.all.Go(func() { k.done <- p.Run(ctx) })
	return k
}

// checkParents is called when a worker opens a shard: its parents must be finished
// in the table by then (R8).
func (w *world) checkParents(info kinetl.ShardInfo) {
	marks := w.memory.Read(tableName).Watermarks
	for _, p := range info.Parents {
		if at := marks[info.ID.Sibling(p)]; at != kinetl.End {
			w.report("R8: %s was opened while its parent %s was at %q", info.ID.Shard, p, at.String())
		}
	}
}

func (w *world) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}
