package kinetl

import (
	"fmt"
	"strings"
	"time"
)

// ShardID names a shard everywhere: in parts, watermarks, dead letters and lease
// stores. The stream's creation time is part of it because a stream that is deleted
// and created again under its old name starts its shard ids and sequence numbers
// anew; without it the old watermark would hide the new records (R1).
type ShardID struct {
	Stream  string // stream ARN
	Created int64  // stream creation time, whole seconds since the epoch
	Shard   string // "shardId-000000000003"
}

// String is for people: stream name and shard id.
func (s ShardID) String() string { return s.StreamName() + "/" + s.Shard }

// StreamName is the last element of the stream's ARN.
func (s ShardID) StreamName() string { return s.Stream[strings.LastIndexByte(s.Stream, '/')+1:] }

// Sibling is another shard of the same stream.
func (s ShardID) Sibling(shard string) ShardID {
	s.Shard = shard
	return s
}

// Position is a place in one shard, as text whose byte order is the order of the
// places (R2): start markers (Oldest, then instants) < sequence numbers < End. The
// text is what watermark rows hold; databases compare it by equality only.
//
// A position means "everything up to and including this has been dealt with"; a
// start marker means that nothing has.
type Position string

const (
	// Oldest is before every record that the shard still holds.
	Oldest Position = "!oldest"
	// End is after the last record of a closed shard.
	End Position = "END"

	sincePrefix = "!since "
	sinceLayout = "2006-01-02T15:04:05.000Z"

	// MaxSequenceDigits is the longest sequence number that Kinesis allows.
	// Source: SequenceNumber pattern 0|([1-9]\d{0,128}) of the API reference.
	MaxSequenceDigits = 129
	subDigits         = 20
)

// Since is the start marker before every record that arrived at t or later. The
// instant is kept in milliseconds, the precision of Kinesis' own timestamps.
func Since(t time.Time) Position {
	return Position(sincePrefix + t.UTC().Truncate(time.Millisecond).Format(sinceLayout))
}

// At is the position of one record: its sequence number in decimal and its index
// inside an aggregated record, 0 for a record that was not aggregated.
func At(sequence string, sub uint64) Position {
	return Position(fmt.Sprintf("%0*s.%0*d", MaxSequenceDigits, sequence, subDigits, sub))
}

// IsStart reports whether p is a start marker.
func (p Position) IsStart() bool { return strings.HasPrefix(string(p), "!") }

// Instant is the time of a Since marker.
func (p Position) Instant() (time.Time, bool) {
	text, ok := strings.CutPrefix(string(p), sincePrefix)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(sinceLayout, text)
	return t, err == nil
}

// Sequence is the sequence number and sub-sequence number of a record position.
func (p Position) Sequence() (sequence string, sub uint64, ok bool) {
	if len(p) != MaxSequenceDigits+1+subDigits || p[MaxSequenceDigits] != '.' {
		return "", 0, false
	}
	for i := range len(p) {
		if i != MaxSequenceDigits && (p[i] < '0' || p[i] > '9') {
			return "", 0, false
		}
	}
	if _, err := fmt.Sscanf(string(p[MaxSequenceDigits+1:]), "%d", &sub); err != nil {
		return "", 0, false
	}
	sequence = strings.TrimLeft(string(p[:MaxSequenceDigits]), "0")
	if sequence == "" {
		sequence = "0"
	}
	return sequence, sub, true
}

// String is the short form for people: no padding, no sub-sequence number when 0.
func (p Position) String() string {
	seq, sub, ok := p.Sequence()
	switch {
	case !ok:
		return strings.TrimPrefix(string(p), "!")
	case sub == 0:
		return seq
	}
	return fmt.Sprintf("%s.%d", seq, sub)
}

// ParsePosition reads the stored text of a position.
func ParsePosition(text string) (Position, error) {
	p := Position(text)
	if p == Oldest || p == End {
		return p, nil
	}
	if t, ok := p.Instant(); ok && Since(t) == p {
		return p, nil
	}
	if _, _, ok := p.Sequence(); ok {
		return p, nil
	}
	return "", fmt.Errorf("position %q is none of: oldest, an instant, a sequence number, END", text)
}
