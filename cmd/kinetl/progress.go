package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kinetl/kinetl"
)

// progress adds up events and shows them: one line that is drawn over on a
// terminal, a line every few seconds elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	every    time.Duration

	mu      sync.Mutex
	started time.Time
	records int64
	bytes   int64
	rows    int64
	dead    int64
	lag     map[kinetl.ShardID]time.Duration
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, every: 5 * time.Second, started: time.Now(), lag: map[kinetl.ShardID]time.Duration{}}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal, p.every = true, 200*time.Millisecond
	}
	return p
}

// observe takes in one event of the engine.
func (p *progress) observe(e kinetl.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case kinetl.EventFetched:
		p.records += e.Records
		p.bytes += e.Bytes
		p.lag[e.Shard] = e.Lag
	case kinetl.EventCommitted:
		p.rows += e.Rows
		p.dead += e.DeadLetters
	case kinetl.EventEnded, kinetl.EventLeaseLost, kinetl.EventLeaseReleased:
		delete(p.lag, e.Shard)
	}
}

// stored is the rows and dead letters that are durable.
func (p *progress) stored() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows + p.dead
}

// show draws until done is closed, and once more then.
func (p *progress) show(done <-chan struct{}) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if p.any() {
				p.draw()
			}
		case <-done:
			if p.any() {
				p.draw()
				if p.terminal {
					fmt.Fprintln(p.out)
				}
			}
			return
		}
	}
}

// any reports whether there is anything to show.
func (p *progress) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lag) > 0 || p.records > 0
}

func (p *progress) draw() {
	p.mu.Lock()
	took := time.Since(p.started)
	var lag time.Duration
	for _, l := range p.lag {
		lag = max(lag, l)
	}
	line := fmt.Sprintf("%9d records  %6.1f MB/s  %9d rows  %3d dead letters  %2d shards  lag %s",
		p.records, float64(p.bytes)/1e6/took.Seconds(), p.rows, p.dead, len(p.lag), lag.Round(time.Millisecond))
	p.mu.Unlock()
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}
