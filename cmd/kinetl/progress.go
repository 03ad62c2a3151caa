package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kinetl/kinetl"
)

// progress adds up events and shows them: one line that is drawn over on a
// terminal, a line every few seconds elsewhere, when something came.
type progress struct {
	out      io.Writer
	terminal bool
	every    time.Duration
	log      *slog.Logger // takes the lines elsewhere than on a terminal; nil: out does

	mu      sync.Mutex
	drawn   bool  // a line stands on the terminal, to be drawn over
	shown   int64 // records and rows of the last line
	started time.Time
	worked  bool // a lease was taken
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
	case kinetl.EventLeaseTaken:
		p.worked = true
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

// Write passes log lines on to out, and the line that is drawn over stays below them.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.out, clearLine)
		p.drawn = false
	}
	return p.out.Write(b)
}

const clearLine = "\r\x1b[K"

// show draws until done is closed, and once more then.
func (p *progress) show(done <-chan struct{}) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.draw(false)
		case <-done:
			p.draw(true)
			return
		}
	}
}

// draw shows where things stand; elsewhere than on a terminal only if that changed,
// or at the end.
func (p *progress) draw(last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.records+p.rows+p.dead != p.shown
	if !p.worked && p.records == 0 || !p.terminal && !last && !changed {
		return
	}
	p.shown = p.records + p.rows + p.dead
	rate := float64(p.bytes) / 1e6 / time.Since(p.started).Seconds()
	var lag time.Duration
	for _, l := range p.lag {
		lag = max(lag, l)
	}
	if !p.terminal && p.log != nil {
		p.log.Info("progress", "records", p.records, "rows", p.rows, "dead_letters", p.dead, "shards", len(p.lag), "lag", lag.Round(time.Millisecond))
		return
	}
	line := fmt.Sprintf("%9d records  %6.1f MB/s  %9d rows  %3d dead letters  %2d shards  lag %s",
		p.records, rate, p.rows, p.dead, len(p.lag), lag.Round(time.Millisecond))
	if !p.terminal {
		fmt.Fprintln(p.out, line)
		return
	}
	fmt.Fprint(p.out, clearLine+line)
	if p.drawn = !last; last {
		fmt.Fprintln(p.out)
	}
}
