package kinetl

import (
	"context"
	"slices"
	"strings"
)

// Watermark is a row that says through which position a table holds a shard.
type Watermark struct {
	Application string // that owns the row (R1)
	Through     Position
}

// Watermarks is what the rules about watermarks need of a transaction of a Destination
// that keeps them in rows. All methods belong to one transaction and one table.
type Watermarks interface {
	// Read returns the rows that there are of shards with these shards' ids, those of
	// other streams included.
	Read(ctx context.Context, shards []ShardID) (map[ShardID]Watermark, error)
	// Insert makes a row of this application, unless another worker has made one
	// meanwhile, and returns what is stored.
	Insert(ctx context.Context, shard ShardID, through Position) (Watermark, error)
	// Set moves a row that is exactly as from says, and makes it this application's. It
	// fails if the row is another one by now.
	Set(ctx context.Context, shard ShardID, from Watermark, to Position) error
	// RecordGap notes a jump in _kinetl_gaps.
	RecordGap(ctx context.Context, m Move, reason string) error
}

// WatermarkRules are the rules about watermarks, the same for every destination that
// keeps them in rows: whose a row is (R1), that a row is there before the first commit
// (R6), that parents are finished first (R8), and that nothing else moves one but Move
// (R14).
type WatermarkRules struct {
	Rows        Watermarks
	Table       string
	Application string
	Adopt       bool // rows of other applications become this one's
}

// endedElsewhere is the reason in _kinetl_gaps when Claim sets End on a parent that
// another system finished.
const endedElsewhere = "finished by another system"

// Claim does what Destination.Claim must with watermarks, and returns what is stored.
func (w WatermarkRules) Claim(ctx context.Context, claims []Claim) (map[ShardID]Position, error) {
	var shards []ShardID
	for _, c := range claims {
		shards = append(shards, c.Shard)
		for _, p := range c.Parents {
			shards = append(shards, p.Shard)
		}
	}
	rows, err := w.Rows.Read(ctx, shards)
	if err != nil {
		return nil, err
	}
	through := map[ShardID]Position{}
	for _, c := range claims {
		if _, exists := rows[c.Shard]; !exists && c.Start == "" {
			continue
		}
		if err := w.claim(ctx, c, rows); err != nil {
			return nil, err
		}
		through[c.Shard] = rows[c.Shard].Through
	}
	return through, nil
}

// claim checks one shard's parents and makes its row. Rows follows what is stored.
func (w WatermarkRules) claim(ctx context.Context, c Claim, rows map[ShardID]Watermark) error {
	for _, p := range c.Parents {
		if err := w.claimParent(ctx, c.Shard, p, rows); err != nil {
			return err
		}
	}
	row, exists := rows[c.Shard]
	if !exists {
		var err error
		if row, err = w.Rows.Insert(ctx, c.Shard, c.Start); err != nil {
			return err
		}
	}
	if err := w.owns(row, c.Shard); err != nil {
		return err
	}
	rows[c.Shard] = Watermark{w.Application, row.Through}
	if row.Application == w.Application {
		return nil
	}
	return w.Rows.Set(ctx, c.Shard, row, row.Through)
}

// claimParent requires End on a parent, or sets it where another system finished it
// (R8). Records between our watermark and that end were not loaded here: a gap.
func (w WatermarkRules) claimParent(ctx context.Context, child ShardID, p ParentClaim, rows map[ShardID]Watermark) error {
	row, exists := rows[p.Shard]
	if !exists && p.Ended {
		var err error
		if row, err = w.Rows.Insert(ctx, p.Shard, End); err != nil {
			return err
		}
		exists = true
	}
	if exists {
		if err := w.owns(row, p.Shard); err != nil {
			return err
		}
	}
	switch {
	case row.Through == End:
		rows[p.Shard] = row
		return nil
	case !p.Ended:
		return &UnfinishedParentError{Shard: child, Parent: p.Shard, Table: w.Table, Through: row.Through}
	}
	rows[p.Shard] = Watermark{w.Application, End}
	if err := w.Rows.Set(ctx, p.Shard, row, End); err != nil {
		return err
	}
	return w.Rows.RecordGap(ctx, Move{Shard: p.Shard, From: row.Through, To: End}, endedElsewhere)
}

func (w WatermarkRules) owns(row Watermark, shard ShardID) error {
	if row.Application == w.Application || w.Adopt {
		return nil
	}
	return &OtherApplicationError{Shard: shard, Table: w.Table, Owner: row.Application, Mine: w.Application}
}

// Move does what Destination.Move must.
func (w WatermarkRules) Move(ctx context.Context, moves []Move, reason string) error {
	var shards []ShardID
	for _, m := range moves {
		shards = append(shards, m.Shard)
	}
	rows, err := w.Rows.Read(ctx, shards)
	if err != nil {
		return err
	}
	for _, m := range moves {
		row, exists := rows[m.Shard]
		if exists {
			if err := w.owns(row, m.Shard); err != nil {
				return err
			}
		}
		if !exists || row.Through != m.From {
			return &MovedError{Shard: m.Shard, Table: w.Table, Stored: row.Through, Wanted: m.From}
		}
		if err := w.Rows.RecordGap(ctx, m, reason); err != nil {
			return err
		}
		if err := w.Rows.Set(ctx, m.Shard, row, m.To); err != nil {
			return err
		}
		rows[m.Shard] = Watermark{w.Application, m.To}
	}
	return nil
}

// Admitted is what a commit stores, and the watermarks that it moves.
type Admitted struct {
	Apply  []Part
	Moved  []MovedWatermark     // in the order of shards, in which a transaction is to lock them
	Fenced map[ShardID]Position // see CommitReport
}

// MovedWatermark is a row of this application and where it goes.
type MovedWatermark struct {
	Shard ShardID
	From  Watermark
	To    Position
}

// Admit decides by the rows which parts a commit stores (R7). A row of another
// application is no row of ours: the shard is fenced, and the next Claim says whose it
// is (R1).
func (w WatermarkRules) Admit(ctx context.Context, parts []Part) (Admitted, error) {
	seen := map[ShardID]bool{}
	var shards []ShardID
	for _, p := range parts {
		if !seen[p.Shard] {
			seen[p.Shard] = true
			shards = append(shards, p.Shard)
		}
	}
	rows, err := w.Rows.Read(ctx, shards)
	if err != nil {
		return Admitted{}, err
	}
	stored := map[ShardID]Position{}
	for shard, row := range rows {
		if row.Application == w.Application {
			stored[shard] = row.Through
		}
	}
	var out Admitted
	var moved map[ShardID]Position
	out.Apply, moved, out.Fenced = Admit(stored, parts)
	for shard, at := range out.Fenced {
		if at == "" {
			out.Fenced[shard] = rows[shard].Through
		}
	}
	for shard, to := range moved {
		out.Moved = append(out.Moved, MovedWatermark{shard, rows[shard], to})
	}
	slices.SortFunc(out.Moved, func(a, b MovedWatermark) int { return compareShards(a.Shard, b.Shard) })
	return out, nil
}

func compareShards(a, b ShardID) int {
	if c := strings.Compare(a.Stream, b.Stream); c != 0 {
		return c
	}
	if a.Created != b.Created {
		return int(max(-1, min(1, a.Created-b.Created)))
	}
	return strings.Compare(a.Shard, b.Shard)
}
