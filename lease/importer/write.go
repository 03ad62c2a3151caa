package importer

import (
	"context"
	"errors"
	"fmt"

	"github.com/kinetl/kinetl/lease"
)

// Outcome is what became of a lease.
type Outcome string

const (
	Missing Outcome = "missing" // it is not there yet
	Written Outcome = "written"
	Exists  Outcome = "exists"  // it is there, at the same position
	Differs Outcome = "differs" // it is there, at another position, and was left alone
)

// Compare says how a lease that is to be written stands to what is there.
func Compare(l lease.Lease, there []lease.Lease) Outcome {
	for _, t := range there {
		if t.Key != l.Key {
			continue
		}
		// Each listing gives LATEST an instant of its own; an earlier one skips nothing.
		start := t.Start.Equal(l.Start) || l.Checkpoint == lease.Latest && !t.Start.IsZero() && t.Start.Before(l.Start)
		if t.Checkpoint == l.Checkpoint && t.Sub == l.Sub && start && t.Unreadable == "" {
			return Exists
		}
		return Differs
	}
	return Missing
}

// Write creates leases that are not there, in their order, and says what became of
// each. One that is there is left alone whatever it says. It stops at the first
// error; whoever calls again goes on from there.
func Write(ctx context.Context, store lease.Store, leases []lease.Lease) ([]Outcome, error) {
	var out []Outcome
	for _, l := range leases {
		err := store.Create(ctx, l)
		if err == nil {
			out = append(out, Written)
			continue
		}
		if !errors.Is(err, lease.ErrLost) {
			return out, err
		}
		have, found, err := store.Get(ctx, l.Key)
		if err == nil && !found {
			err = errors.New("it was there and is gone: another program changes the leases")
		}
		if err != nil {
			return out, fmt.Errorf("lease %s: %w", l.Key, err)
		}
		out = append(out, Compare(l, []lease.Lease{have}))
	}
	return out, nil
}
