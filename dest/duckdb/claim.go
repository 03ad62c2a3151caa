package duckdb

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
			if got.Sink, err = t.sink(ctx); err != nil {
				return err
			}
			d.opts.Observe("watermarks")
			got.Through, err = t.rules(table, got.Sink).Claim(ctx, claims)
			return err
		})
	}
	if err != nil {
		return kinetl.Claimed{}, fmt.Errorf("claim shards of %s: %w", table, err)
	}
	return got, nil
}

// Move implements kinetl.Destination.
func (d *Destination) Move(ctx context.Context, table string, moves []kinetl.Move, reason string) error {
	err := d.ensureState(ctx)
	if err == nil {
		err = d.transact(ctx, func(t *tx) error {
			d.opts.Observe("watermarks")
			return t.rules(table, "").Move(ctx, moves, reason)
		})
	}
	if err != nil {
		return fmt.Errorf("move watermarks of %s: %w", table, err)
	}
	return nil
}
