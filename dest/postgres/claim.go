package postgres

import (
	"context"
	"fmt"

	"github.com/kinetl/kinetl"
)

// Claim implements kinetl.Destination.
func (d *Destination) Claim(ctx context.Context, table string, claims []kinetl.Claim) (kinetl.Claimed, error) {
	var got kinetl.Claimed
	err := d.ensureState(ctx)
	if err == nil {
		err = d.transact(ctx, func(t *tx) (err error) {
			got, err = t.claimAll(ctx, table, claims)
			return err
		})
	}
	if err != nil {
		return kinetl.Claimed{}, fmt.Errorf("claim shards of %s: %w", table, err)
	}
	return got, nil
}

func (t *tx) claimAll(ctx context.Context, table string, claims []kinetl.Claim) (kinetl.Claimed, error) {
	got := kinetl.Claimed{Through: map[kinetl.ShardID]kinetl.Position{}}
	var shards []kinetl.ShardID
	for _, c := range claims {
		shards = append(shards, c.Shard)
		for _, p := range c.Parents {
			shards = append(shards, p.Shard)
		}
	}
	marks, err := t.marks(ctx, table, shards)
	if err != nil {
		return got, err
	}
	if got.Sink, err = t.sink(ctx); err != nil {
		return got, err
	}
	t.d.opts.Observe("watermarks")
	for _, c := range claims {
		if _, exists := marks[c.Shard]; !exists && c.Start == "" {
			continue
		}
		if err := t.claim(ctx, table, got.Sink, c, marks); err != nil {
			return got, err
		}
		got.Through[c.Shard] = marks[c.Shard].through
	}
	return got, nil
}

// claim checks one shard's parents and makes its row. Marks follows what it stores.
func (t *tx) claim(ctx context.Context, table, sink string, c kinetl.Claim, marks map[kinetl.ShardID]mark) error {
	for _, p := range c.Parents {
		if err := t.claimParent(ctx, table, sink, c.Shard, p, marks); err != nil {
			return err
		}
	}
	m, exists := marks[c.Shard]
	if !exists {
		var err error
		if m, err = t.insertMark(ctx, table, sink, c.Shard, c.Start); err != nil {
			return err
		}
	}
	if err := t.d.owns(m, true, table, c.Shard); err != nil {
		return err
	}
	marks[c.Shard] = mark{t.d.opts.Application, m.through}
	if m.application == t.d.opts.Application {
		return nil
	}
	return t.setMarks(ctx, table, []change{{c.Shard, m, m.through}})
}

// claimParent requires End on a parent, or sets it where another system finished it
// (R8). Records between our watermark and that end were not loaded here: a gap.
func (t *tx) claimParent(ctx context.Context, table, sink string, child kinetl.ShardID, p kinetl.ParentClaim, marks map[kinetl.ShardID]mark) error {
	m, exists := marks[p.Shard]
	if !exists && p.Ended {
		var err error
		if m, err = t.insertMark(ctx, table, sink, p.Shard, kinetl.End); err != nil {
			return err
		}
		exists = true
	}
	if err := t.d.owns(m, exists, table, p.Shard); err != nil {
		return err
	}
	switch {
	case m.through == kinetl.End:
		marks[p.Shard] = m
		return nil
	case !p.Ended:
		return &kinetl.UnfinishedParentError{Shard: child, Parent: p.Shard, Table: table, Through: m.through}
	}
	marks[p.Shard] = mark{t.d.opts.Application, kinetl.End}
	if err := t.setMarks(ctx, table, []change{{p.Shard, m, kinetl.End}}); err != nil {
		return err
	}
	return t.recordGap(ctx, table, kinetl.Move{Shard: p.Shard, From: m.through, To: kinetl.End}, endedElsewhere)
}

// Move implements kinetl.Destination.
func (d *Destination) Move(ctx context.Context, table string, moves []kinetl.Move, reason string) error {
	err := d.ensureState(ctx)
	if err == nil {
		err = d.transact(ctx, func(t *tx) error { return t.move(ctx, table, moves, reason) })
	}
	if err != nil {
		return fmt.Errorf("move watermarks of %s: %w", table, err)
	}
	return nil
}

func (t *tx) move(ctx context.Context, table string, moves []kinetl.Move, reason string) error {
	var shards []kinetl.ShardID
	for _, m := range moves {
		shards = append(shards, m.Shard)
	}
	marks, err := t.marks(ctx, table, shards)
	if err != nil {
		return err
	}
	t.d.opts.Observe("watermarks")
	for _, m := range moves {
		stored, exists := marks[m.Shard]
		if err := t.d.owns(stored, exists, table, m.Shard); err != nil {
			return err
		}
		if !exists || stored.through != m.From {
			return &kinetl.MovedError{Shard: m.Shard, Table: table, Stored: stored.through, Wanted: m.From}
		}
		if err := t.recordGap(ctx, table, m, reason); err != nil {
			return err
		}
		if err := t.setMarks(ctx, table, []change{{m.Shard, stored, m.To}}); err != nil {
			return err
		}
		marks[m.Shard] = mark{t.d.opts.Application, m.To}
	}
	return nil
}
