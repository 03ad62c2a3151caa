package kinetl

import "time"

// Record is one user record: a record of the stream, or one of the records that a
// producer library packed into it. Its text and bytes live as long as its Fetch.
type Record struct {
	Sequence     string // decimal sequence number of the stream's record
	Sub          uint64 // index inside an aggregated record, else 0
	PartitionKey string
	Arrived      time.Time // ApproximateArrivalTimestamp, UTC
	Data         []byte
}

// Position is the record's place in its shard.
func (r *Record) Position() Position { return At(r.Sequence, r.Sub) }
