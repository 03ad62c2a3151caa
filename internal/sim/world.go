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
	streams []*stream // each feeds the table of its name
	memory  *desttest.Memory
	leases  lease.Memory
	changes kinetl.TypeChanges
	halting bool // undecodable records halt their shards
	mixed   bool // workers of KCL 2 share the leases
	sent    *sent
	workers []*worker
	count   int
	all     sync.WaitGroup // every goroutine of the world

	mu        sync.Mutex
	faults    []string             // what was seen to be wrong while it ran
	elsewhere map[string]bool      // records that KCL's workers read, by id
	kclHeld   map[string]time.Time // when a lease was last written by a worker of KCL that holds it
}

// observe is where a seed under study can print what happens.
func observe(kinetl.Event) {}

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
		rng: rng, mutant: mutant, streams: []*stream{newStream("sim", 1+rng.IntN(4))},
		memory: desttest.NewMemory(desttest.MemoryOptions{}), sent: newSent(),
		changes: kinetl.TypeChanges(rng.IntN(2)), halting: rng.IntN(5) == 0, elsewhere: map[string]bool{}, kclHeld: map[string]time.Time{},
	}
	w.mixed = mutant == none && rng.IntN(4) == 0
	if rng.IntN(4) == 0 {
		w.streams = append(w.streams, newStream("sim2", 1+rng.IntN(2)))
	}
	w.storm()
	wrong := w.calm()
	w.all.Wait()
	return append(w.faults, wrong...)
}

// storm lets everything happen at random for a while.
func (w *world) storm() {
	end := time.Now().Add(time.Duration(20+w.rng.IntN(100)) * time.Second)
	w.start(false)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		switch n := w.rng.IntN(100); {
		case n < 70:
			w.put(1 + w.rng.IntN(30))
		case n < 76:
			w.anyStream().split(w.rng)
		case n < 81:
			w.anyStream().merge(w.rng)
		case n < 83 && w.mixed && w.count < 12:
			w.startKCL()
		case n < 88 && w.count < 12:
			w.start(w.rng.IntN(4) == 0)
		case n < 92:
			w.end(func(k *worker) { k.chaos.kill() })
		case n < 95:
			w.end(func(*worker) {})
		case n < 98 && len(w.workers) > 0:
			w.workers[w.rng.IntN(len(w.workers))].chaos.blindFor(time.Duration(w.rng.IntN(30)) * time.Second)
		case n < 99:
			w.resolve()
			w.memory.AddColumn(w.anyStream().name, kinetl.Column{Name: fmt.Sprintf("theirs%d", w.rng.IntN(5)), Class: kinetl.Text, Cap: true})
		}
	}
}

func (w *world) anyStream() *stream { return w.streams[w.rng.IntN(len(w.streams))] }

// resolve is an operator who resolves every open incident.
func (w *world) resolve() {
	ctx := context.Background()
	leases, _ := w.leases.List(ctx)
	for _, inc := range kinetl.AllIncidents(leases) {
		if _, err := kinetl.Resolve(ctx, &w.leases, inc.ID, kinetl.Resolution{From: kinetl.Oldest}); err != nil {
			w.report("R24: %v", err)
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
		var halted *kinetl.HaltedError
		if err := <-k.done; err != nil && !errors.Is(err, errService) && !errors.As(err, &halted) {
			w.report("a worker failed: %v", err)
		}
	}
	w.workers, w.halting = nil, false
	// A worker that was killed may have an incident on its way to the lease: the
	// operator looks again.
	for range 5 {
		w.resolve()
		var halted *kinetl.HaltedError
		switch err := w.readAll(); {
		case errors.As(err, &halted):
			continue
		case err != nil:
			w.report("the last worker failed: %v", err)
		}
		break
	}
	return w.check()
}

// readAll runs one worker without faults until everything is read.
func (w *world) readAll() error {
	k := w.worker(0, true)
	select {
	case err := <-k.done:
		return err
	case <-time.After(30 * time.Minute):
		k.chaos.kill()
		k.stop()
		<-k.done
		return errors.New("it did not finish in 30 minutes")
	}
}

func (w *world) start(once bool) {
	w.workers = append(w.workers, w.worker(1, once))
}

// worker starts a process. With once it ends by itself, when it has read everything.
func (w *world) worker(level float64, once bool) *worker {
	w.count++
	ctx, cancel := context.WithCancel(context.Background())
	k := &worker{chaos: newChaos(w.rng, level), stop: cancel, done: make(chan error, 1)}
	handle := w.memory.Handle(desttest.MemoryOptions{
		Fault: k.chaos.fault, Reject: refuse, NoFence: w.mutant == noFence, NoSchemaCheck: w.mutant == noSchemaCheck,
	})
	p := &kinetl.Pipeline{
		Consumer: kinetl.Consumer{
			Source: &source{streams: w.streams, chaos: k.chaos, onRead: w.checkParents},
			Leases: &leases{store: &w.leases, chaos: k.chaos},
			Config: kinetl.ConsumerConfig{Worker: fmt.Sprintf("worker-%d", w.count), Once: once, Observe: func(e kinetl.Event) { observe(e); k.chaos.stall() }},
		},
		NewDecoder:  codec.NewJSON,
		Destination: mutate(w, handle, k.chaos),
		Config: kinetl.PipelineConfig{
			TypeChanges: w.changes, FailUndecodable: w.halting,
			Drain:  time.Duration(1+w.rng.IntN(20_000)) * time.Millisecond,
			Batch:  kinetl.Batch{Rows: 1 + w.rng.IntN(50), Age: time.Duration(1+w.rng.IntN(5000)) * time.Millisecond},
			Memory: int64(4000 + w.rng.IntN(60000)), RowGroup: w.rng.IntN(20),
		},
	}
	before, began := len(w.sent.payloads), time.Now()
	w.all.Go(func() {
		err := p.Run(ctx)
		if once && err == nil && ctx.Err() == nil {
			w.checkOnce(before, began)
		}
		k.done <- err
	})
	return k
}

// checkParents is called when a worker opens a shard: its parents must be finished
// in the table by then (R8).
func (w *world) checkParents(info kinetl.ShardInfo) {
	marks := w.memory.Read(info.ID.StreamName()).Watermarks
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
