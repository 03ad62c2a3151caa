package kinetl

import "context"

// Again is which rows of a table MoveAndDelete deletes for one shard: those of the
// shard whose sequence number is larger than Sequence, or is it and whose _openetl_id is
// not in Before. Sequence numbers are compared by length first: they are decimal
// numbers without leading zeros, longer than any integer type.
type Again struct {
	Shard    ShardID
	Sequence string
	Sub      uint64   // of the first record inside its aggregate
	Before   []string // ids of the records of the same aggregate that stay

	// Streams tells rows of shards apart that have the same shard id, the shard itself
	// first: of other streams, or of this one before it was created anew. Alone, the
	// shard id tells the rows.
	Streams []RowStream
}

// RowStream is how rows of one shard are known.
type RowStream struct {
	Prefix string // sha256(Prefix, sequence number, line feed, sub-sequence number) begins with the _openetl_id
	Name   string // the stream's; empty if another of the shards is of a stream of that name
}

// Again prepares the deletion of what moves say. The watermark rows tell which streams
// have loaded the table: a row is claimed before a shard's first commit (R6).
func (w WatermarkRules) Again(ctx context.Context, moves []Move) ([]Again, error) {
	var shards []ShardID
	for _, m := range moves {
		shards = append(shards, m.Shard)
	}
	rows, err := w.Rows.Read(ctx, shards)
	if err != nil {
		return nil, err
	}
	same := map[string][]ShardID{}
	for s := range rows {
		same[s.Shard] = append(same[s.Shard], s)
	}
	var out []Again
	for _, m := range moves {
		sequence, sub, ok := m.Again.Sequence()
		if !ok {
			continue
		}
		a := Again{Shard: m.Shard, Sequence: sequence, Sub: sub}
		for n := range sub {
			a.Before = append(a.Before, RecordID(m.Shard, sequence, n))
		}
		streams := []ShardID{m.Shard}
		for _, s := range same[m.Shard.Shard] {
			if s != m.Shard {
				streams = append(streams, s)
			}
		}
		a.Streams = rowStreams(streams)
		out = append(out, a)
	}
	return out, nil
}

func rowStreams(shards []ShardID) []RowStream {
	named := map[string]int{}
	for _, s := range shards {
		named[s.StreamName()]++
	}
	var out []RowStream
	for _, s := range shards {
		r := RowStream{Prefix: string(appendPrefix(nil, &s))}
		if name := s.StreamName(); named[name] == 1 {
			r.Name = name
		}
		out = append(out, r)
	}
	return out
}
