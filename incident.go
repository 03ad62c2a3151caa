package kinetl

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// IncidentKind names a condition that needs a person.
type IncidentKind string

const (
	IncidentExpired     IncidentKind = "expired"      // unread records left the stream (R26)
	IncidentOtherSink   IncidentKind = "other_sink"   // the lease was written for another destination (R15)
	IncidentNoWatermark IncidentKind = "no_watermark" // the lease says that this destination held the shard, which it does not (R15)
	IncidentForeign     IncidentKind = "foreign_checkpoint"
	IncidentUndecodable IncidentKind = "undecodable" // a record can't be decoded and the pipeline says to stop at such
)

// Incident is a condition that halts a shard, and with it the shard's descendants,
// until a person decides (R24). It is stored on the shard's lease.
type Incident struct {
	ID       string       `json:"id"`
	Kind     IncidentKind `json:"kind"`
	Shard    string       `json:"shard"`
	Position string       `json:"position"`
	Detail   string       `json:"detail"` // what happened and what to do, one line
	At       time.Time    `json:"at"`
}

// NewIncident builds an incident. Its id is a hash of shard, kind and position, so
// the same condition met twice is one incident.
func NewIncident(kind IncidentKind, shard ShardID, p Position, detail string, at time.Time) Incident {
	sum := sha256.Sum256([]byte(strings.Join([]string{shard.Stream, shard.Shard, string(kind), string(p)}, "\n")))
	return Incident{
		ID: hex.EncodeToString(sum[:6]), Kind: kind, Shard: shard.String(),
		Position: p.String(), Detail: detail, At: at.UTC(),
	}
}
