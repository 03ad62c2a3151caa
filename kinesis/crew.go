package kinesis

import (
	"context"
	"sync"
)

// crew makes the calls that bring next to nothing, of all readers of a source: those
// of shards that begin, or have nothing new. A few goroutines serve thousands of
// shards. A call through the SDK needs a deep stack, which each shard's goroutine
// would grow for every call and lose again to the next garbage collection; and shards
// that begin or wake up together would each open a connection of their own.
type crew struct {
	mu      sync.Mutex
	readers int // open ones; the last to close sends the crew home
	workers int
	jobs    chan func()
	wg      sync.WaitGroup
}

func (c *crew) join() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers++; c.readers == 1 {
		c.jobs = make(chan func())
	}
}

// leave is for a reader whose calls have returned.
func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers--; c.readers > 0 {
		return
	}
	close(c.jobs)
	c.wg.Wait() // they wait for jobs, of which there are none
	c.workers = 0
}

// do has one of the crew call f and waits until it has, unless ctx ends before one is
// free.
func (c *crew) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	job := func() { defer close(done); f() }
	select {
	case c.jobs <- job:
	case <-ctx.Done():
		return ctx.Err()
	default:
		c.hire()
		select {
		case c.jobs <- job:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-done
	return nil
}

func (c *crew) hire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers == maxLightCalls {
		return
	}
	c.workers++
	jobs := c.jobs
	c.wg.Go(func() {
		for job := range jobs {
			job()
		}
	})
}
