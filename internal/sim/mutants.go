package sim

import (
	"context"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
)

// mutate wraps a destination so that the engine behind it behaves as if a rule had
// been left out.
func mutate(w *world, m *desttest.Memory, c *chaos) kinetl.Destination {
	switch w.mutant {
	case resumeFromLease:
		return &leaseResumer{Destination: m, w: w}
	case endBeforeDurable:
		unchecked := w.memory.Handle(desttest.MemoryOptions{Fault: c.fault, Reject: refuse, NoParentCheck: true})
		return &earlyEnd{Destination: unchecked, w: w, chaos: c}
	case commitCreatesRow:
		return &rowCreator{Destination: m, w: w, chaos: c}
	}
	return m
}

// leaseResumer answers a claim with the lease's checkpoint instead of the watermark.
type leaseResumer struct {
	kinetl.Destination
	w *world
}

func (d *leaseResumer) Claim(ctx context.Context, table string, claims []kinetl.Claim) (kinetl.Claimed, error) {
	got, err := d.Destination.Claim(ctx, table, claims)
	if err != nil {
		return got, err
	}
	for _, c := range claims {
		l, found, err := d.w.leases.Get(ctx, kinetl.LeaseKey(c.Shard))
		if err != nil {
			return got, err
		}
		if p, ok := got.Through[c.Shard]; ok && found && p != kinetl.End {
			got.Through[c.Shard] = kinetl.Oldest
			if l.Sink.Position != "" {
				got.Through[c.Shard] = kinetl.Position(l.Sink.Position)
			}
		}
	}
	return got, nil
}

// earlyEnd says that a shard's last part is stored before it is, to an engine that
// does not ask the table about parents either: both halves of R8 are missing.
type earlyEnd struct {
	kinetl.Destination
	w     *world
	chaos *chaos
}

func (d *earlyEnd) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	var rest []kinetl.Part
	for _, p := range parts {
		if p.Through != kinetl.End {
			rest = append(rest, p)
			continue
		}
		if p.Rows != nil {
			p.Rows.Retain()
		}
		d.w.all.Go(func() {
			time.Sleep(time.Duration(d.chaos.intn(5000)) * time.Millisecond)
			if !d.chaos.isDead() {
				_, _ = d.Destination.Commit(context.WithoutCancel(ctx), table, []kinetl.Part{p})
			}
		})
	}
	if len(rest) == 0 {
		return kinetl.CommitReport{}, nil
	}
	return d.Destination.Commit(ctx, table, rest)
}

// rowCreator leaves it to Commit to make a shard's watermark row. As in an SQL
// database, looking at a row that is not there locks nothing: what is decided from
// its absence is done however long ago that was.
type rowCreator struct {
	kinetl.Destination
	w     *world
	chaos *chaos
}

func (d *rowCreator) Claim(ctx context.Context, table string, claims []kinetl.Claim) (kinetl.Claimed, error) {
	stored := d.w.memory.Read(table).Watermarks
	got := kinetl.Claimed{Sink: "memory", Through: map[kinetl.ShardID]kinetl.Position{}}
	for _, c := range claims {
		p, ok := stored[c.Shard]
		if !ok {
			p = c.Start
		}
		got.Through[c.Shard] = p
	}
	return got, nil
}

func (d *rowCreator) Commit(ctx context.Context, table string, parts []kinetl.Part) (kinetl.CommitReport, error) {
	stored := d.w.memory.Read(table).Watermarks
	var absent, present []kinetl.Part
	for _, p := range parts {
		if _, ok := stored[p.Shard]; ok {
			present = append(present, p)
		} else {
			absent = append(absent, p)
		}
	}
	if len(absent) > 0 {
		if err := d.chaos.call(ctx, 0); err != nil {
			return kinetl.CommitReport{}, err
		}
		if _, err := d.w.memory.Handle(desttest.MemoryOptions{NoFence: true, Reject: refuse}).Commit(ctx, table, absent); err != nil {
			return kinetl.CommitReport{}, err
		}
	}
	if len(present) == 0 {
		return kinetl.CommitReport{}, nil
	}
	return d.Destination.Commit(ctx, table, present)
}
