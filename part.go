package kinetl

import (
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Part is the unit of commitment: what one shard yields for one table over the
// positions (After, Through]. A part without rows and dead letters still moves the
// watermark; the last part of a finished shard has Through = End (R8).
type Part struct {
	Shard          ShardID
	After, Through Position
	Rows           arrow.RecordBatch // nil when there are none
	Schema         Schema            // of Rows, column by column
	RowIDs         []RowID           // the record behind each row, to name one that the destination refuses
	DeadLetters    []DeadLetter
	Gap            *Gap // nil: the part follows on After
}

// Gap says that a person accepted that records after a part's After left the stream
// unread (R24). A destination records it in _kinetl_gaps together with the part.
type Gap struct {
	To     Position // the first record that was still there, or End
	Reason string
}

// NumRows is the number of rows.
func (p *Part) NumRows() int64 {
	if p.Rows == nil {
		return 0
	}
	return p.Rows.NumRows()
}

// cut makes two parts of one, which chain: the first has n rows, fewer than the part,
// and leads to the record of the last of them. Their rows share memory with the
// part's; the caller releases all three.
func (p *Part) cut(n int) (first, rest Part) {
	at := p.RowIDs[n-1].Position()
	dead := slices.IndexFunc(p.DeadLetters, func(d DeadLetter) bool { return At(d.Sequence, d.Sub) > at })
	if dead < 0 {
		dead = len(p.DeadLetters)
	}
	first, rest = *p, *p
	first.Through, rest.After, rest.Gap = at, at, nil
	first.Rows, rest.Rows = p.Rows.NewSlice(0, int64(n)), p.Rows.NewSlice(int64(n), p.Rows.NumRows())
	first.RowIDs, rest.RowIDs = p.RowIDs[:n], p.RowIDs[n:]
	first.DeadLetters, rest.DeadLetters = p.DeadLetters[:dead], p.DeadLetters[dead:]
	return first, rest
}

// batchBytes is about how much heap the part's rows hold.
func batchBytes(p Part) int64 {
	n := int64(0)
	for _, column := range p.Rows.Columns() {
		for _, buffer := range column.Data().Buffers() {
			if buffer != nil {
				n += int64(buffer.Cap())
			}
		}
	}
	for _, id := range p.RowIDs {
		n += int64(len(id.Sequence)) + 24
	}
	return n
}

// RowID is the position of a row's record, unpadded.
type RowID struct {
	Sequence string
	Sub      uint64
}

// Position is the row's place in its shard.
func (r RowID) Position() Position { return At(r.Sequence, r.Sub) }

// DeadLetter is a record that could not become a row. It is stored with its bytes
// in the same atomic step as the rows around it, so records read = rows + dead
// letters, per shard, always.
type DeadLetter struct {
	Sequence     string
	Sub          uint64
	Arrived      time.Time
	PartitionKey string
	Reason       string
	Payload      []byte
	At           time.Time // when kinetl set it aside
}

// Admit decides, inside the transaction that would store the parts, which of them
// extend what is stored (R7). Parts of one shard are given in order and may chain:
// a part that is applied moves the watermark that the next is compared with.
//
//   - After equal to the watermark: applied.
//   - Through at or below the watermark: skipped, it is stored already. That makes
//     repeating a commit harmless.
//   - everything else is fenced, an overlap and a missing watermark row included:
//     another worker has moved the shard, and what this one holds was read in a
//     past that the table no longer shares. All later parts of that shard are
//     fenced too.
//
// The returned watermarks hold the new position of every shard with an applied part.
func Admit(stored map[ShardID]Position, parts []Part) (apply []Part, moved map[ShardID]Position, fenced map[ShardID]Position) {
	moved, fenced = map[ShardID]Position{}, map[ShardID]Position{}
	for _, p := range parts {
		if _, out := fenced[p.Shard]; out {
			continue
		}
		at, ok := moved[p.Shard]
		if !ok {
			at, ok = stored[p.Shard]
		}
		switch {
		case ok && p.Through <= at:
		case ok && p.After == at:
			apply = append(apply, p)
			moved[p.Shard] = p.Through
		default:
			fenced[p.Shard] = at
		}
	}
	return apply, moved, fenced
}
