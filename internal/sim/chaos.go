package sim

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// chaos makes one worker's calls slow and failing, and after kill dead: a killed
// worker's calls that have begun may still take effect, new ones never do.
type chaos struct {
	mu    sync.Mutex
	rng   *rand.Rand
	level float64 // factor on probabilities; 0: calm
	dead  bool
	blind time.Time // the lease store does not answer until then
}

func newChaos(rng *rand.Rand, level float64) *chaos {
	return &chaos{rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())), level: level}
}

func (c *chaos) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

func (c *chaos) blindFor(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind = time.Now().Add(d)
}

func (c *chaos) chance(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64() < p*c.level
}

func (c *chaos) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// stall holds up whatever goroutine calls it, now and then, as a busy machine does:
// what others do meanwhile meets it all at once. The calm are not spared.
func (c *chaos) stall() {
	if c.intn(50) == 0 {
		time.Sleep(time.Duration(c.intn(3000)) * time.Millisecond)
	}
}

// wait sleeps for up to d.
func (c *chaos) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(time.Duration(c.intn(int(d))))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call is the fate of one call: slow, very slow, failed, or fine.
func (c *chaos) call(ctx context.Context, failure float64) error {
	if c.isDead() {
		return errService
	}
	latency := 20 * time.Millisecond
	if c.chance(0.01) {
		latency = 25 * time.Second // longer than a lease lasts
	}
	if err := c.wait(ctx, latency); err != nil {
		return err
	}
	if c.isDead() || c.chance(failure) {
		return errService
	}
	return nil
}

// fault is the hook of the destination: each step of a call may be slow or fail,
// before or after its effect.
func (c *chaos) fault(ctx context.Context, step string) error {
	switch step {
	case "commit:begin", "commit:done", "claim:begin", "claim:done", "prepare:begin", "prepare:done":
		return c.call(ctx, 0.03)
	}
	if c.chance(0.01) {
		return errService
	}
	return nil
}

// leases is one worker's connection to the lease table.
type leases struct {
	store *lease.Memory
	chaos *chaos
}

func (l *leases) gate(ctx context.Context) error {
	l.chaos.mu.Lock()
	blind := time.Until(l.chaos.blind)
	l.chaos.mu.Unlock()
	if blind > 0 {
		t := time.NewTimer(blind)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.chaos.call(ctx, 0.02)
}

func (l *leases) List(ctx context.Context) ([]lease.Lease, error) {
	if err := l.gate(ctx); err != nil {
		return nil, err
	}
	out, err := l.store.List(ctx)
	for i := range out {
		out[i].Foreign = strings.HasPrefix(out[i].Owner, kclPrefix)
	}
	return out, err
}

func (l *leases) Get(ctx context.Context, key string) (lease.Lease, bool, error) {
	if err := l.gate(ctx); err != nil {
		return lease.Lease{}, false, err
	}
	x, found, err := l.store.Get(ctx, key)
	x.Foreign = strings.HasPrefix(x.Owner, kclPrefix)
	return x, found, err
}

func (l *leases) Create(ctx context.Context, x lease.Lease) error {
	return l.write(ctx, func() error { return l.store.Create(ctx, x) })
}

func (l *leases) Update(ctx context.Context, old, next lease.Lease) (got lease.Lease, err error) {
	err = l.write(ctx, func() (err error) {
		got, err = l.store.Update(ctx, old, next)
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return got, nil
}

func (l *leases) Signal(ctx context.Context, key, signal string) error {
	if l.chaos.chance(0.2) {
		return nil // another worker's signal has taken its place
	}
	return l.write(ctx, func() error { return l.store.Signal(ctx, key, signal) })
}

func (l *leases) Delete(ctx context.Context, x lease.Lease) error {
	return l.write(ctx, func() error { return l.store.Delete(ctx, x) })
}

// write does a conditional write whose answer may be lost.
func (l *leases) write(ctx context.Context, f func() error) error {
	if err := l.gate(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	if l.chaos.chance(0.02) {
		return errService
	}
	return nil
}
