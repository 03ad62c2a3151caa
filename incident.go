package kinetl

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// IncidentKind names a condition that needs a person.
type IncidentKind string

const (
	IncidentExpired      IncidentKind = "expired"       // unread records left the stream (R26)
	IncidentOtherSink    IncidentKind = "other_sink"    // the lease was written for another destination (R15)
	IncidentNoWatermark  IncidentKind = "no_watermark"  // the lease says that this destination held the shard, which it does not (R15)
	IncidentUndecodable  IncidentKind = "undecodable"   // a record can't be decoded and the pipeline says to stop at such
	IncidentCheckpoint   IncidentKind = "checkpoint"    // what another system wrote on the lease can't be of the shard (R18)
	IncidentOtherStream  IncidentKind = "other_stream"  // the leases are of another stream, or of this one before it was created anew (R1)
	IncidentGone         IncidentKind = "gone"          // the stream was deleted, or deleted and created anew, before it was read to its end (R26)
	IncidentUnreadable   IncidentKind = "unreadable"    // the lease, or the incident on it, can't be read
	IncidentColumnCapped IncidentKind = "column_capped" // values do not fit a column that is not widened (R28); does not halt
)

// Incident is a condition that stays open until a person resolves it (R24). It is
// stored on the lease of the shard that met it. One that halts keeps the shard and
// its descendants unread; one that does not is a notice, and reading goes on.
type Incident struct {
	ID       string       `json:"id"`
	Kind     IncidentKind `json:"kind"`
	Halts    bool         `json:"halts"`
	Shard    string       `json:"shard"`
	Position string       `json:"position"` // as Position.String prints it
	Detail   string       `json:"detail"`   // what happened and what to do, one line
	At       time.Time    `json:"at"`
}

// NewIncident builds an incident that halts the shard. Its id is a hash of shard,
// kind and position, so the same condition met twice is one incident.
func NewIncident(kind IncidentKind, shard ShardID, p Position, detail string, at time.Time) Incident {
	return Incident{
		ID: incidentID(shard.Stream, shard.Shard, string(kind), string(p)), Kind: kind, Halts: true, Shard: shard.String(),
		Position: p.String(), Detail: detail, At: at.UTC(),
	}
}

// newGone builds the incident of a stream that went away while it was read.
func newGone(shard ShardID, p Position) Incident {
	detail := fmt.Sprintf("%s: the stream was deleted, or deleted and created anew, and what the shard held after %s was not read; if the stream is there, account, region or name are others than before: correct them, or accept the loss, which deletes the lease", shard, p)
	return NewIncident(IncidentGone, shard, p, detail, time.Now())
}

// newColumnCapped builds the notice that values do not fit a column. Its id is a hash
// of table and column: whichever shard meets the column, in whatever run, it is one
// incident. The detail quotes no value.
func newColumnCapped(table string, c Column, shard ShardID, p Position, at time.Time) Incident {
	why := c.Why
	if why == "" {
		why = "kinetl did not make the column and leaves its type to you: change it, or what producers send"
	}
	return Incident{
		ID: incidentID(string(IncidentColumnCapped), Fold(table), Fold(c.Name)), Kind: IncidentColumnCapped, Shard: shard.String(),
		Position: p.String(), At: at.UTC(),
		Detail: fmt.Sprintf("table %s, column %s: records whose value is not %s become dead letters: %s", table, quoted([]byte(c.Name)), c.typeName(), why),
	}
}

func incidentID(of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\n")))
	return hex.EncodeToString(sum[:6])
}

// maxNotices bounds the notices on one lease: the row is written with every renewal,
// and stores may limit its size. Columns beyond are told in events only.
const maxNotices = 20

// OpenIncidents reads the incidents on a lease, the one that halts first. What can't
// be read is an incident that halts: another version of kinetl wrote it for a reason.
func OpenIncidents(l lease.Lease) []Incident {
	if l.Unreadable != "" {
		return []Incident{{
			ID: incidentID(l.Key, l.Unreadable), Kind: IncidentUnreadable, Halts: true, Shard: l.Key,
			Detail: fmt.Sprintf("lease %s can't be read, %s: put it right, or delete it if the shard is to be read from its start", l.Key, l.Unreadable),
		}}
	}
	if l.Incident == "" {
		return nil
	}
	var list []Incident
	if err := json.Unmarshal([]byte(l.Incident), &list); err != nil || len(list) == 0 {
		return []Incident{{ID: incidentID(l.Key, l.Incident), Kind: IncidentUnreadable, Halts: true, Shard: l.Key, Detail: "the incident on the lease can't be read: use the version of kinetl that wrote it"}}
	}
	slices.SortStableFunc(list, func(a, b Incident) int {
		switch {
		case a.Halts == b.Halts:
			return 0
		case a.Halts:
			return -1
		}
		return 1
	})
	return list
}

// isHalted reports whether an incident on the lease keeps the shard unread.
func isHalted(l lease.Lease) bool {
	list := OpenIncidents(l)
	return len(list) > 0 && list[0].Halts
}

// addIncident writes an incident to a lease. One that halts takes the place of
// another that does; notices stay beside it.
func addIncident(l *lease.Lease, inc Incident) {
	list := slices.DeleteFunc(OpenIncidents(*l), func(have Incident) bool {
		return have.ID == inc.ID || inc.Halts && have.Halts
	})
	if !inc.Halts && len(list) >= maxNotices {
		return
	}
	setIncidents(l, append(list, inc))
}

// removeIncident takes an incident off a lease.
func removeIncident(l *lease.Lease, id string) {
	setIncidents(l, slices.DeleteFunc(OpenIncidents(*l), func(inc Incident) bool { return inc.ID == id }))
}

var lookedAtAnew = []IncidentKind{IncidentOtherSink, IncidentNoWatermark, IncidentCheckpoint, IncidentGone}

// lookAgain takes off a lease the incidents whose condition its next holder finds out
// by itself, and opens them again if it still holds: that a person has put it right,
// by pointing the pipeline at the right file say, is written on no lease.
func lookAgain(l *lease.Lease) {
	list := OpenIncidents(*l)
	left := slices.DeleteFunc(slices.Clone(list), func(inc Incident) bool {
		return slices.Contains(lookedAtAnew, inc.Kind)
	})
	if len(left) < len(list) {
		setIncidents(l, left)
	}
}

func setIncidents(l *lease.Lease, list []Incident) {
	l.Incident = ""
	if len(list) > 0 {
		text, _ := json.Marshal(list) // strings, booleans and times of this century: never fails
		l.Incident = string(text)
	}
}

// AllIncidents is the open incidents of an application's leases, each once however
// many leases it is on, those that halt first.
func AllIncidents(leases []lease.Lease) (out []Incident) {
	seen := map[string]bool{}
	for _, halts := range []bool{true, false} {
		for _, l := range leases {
			for _, inc := range OpenIncidents(l) {
				if inc.Halts == halts && !seen[inc.ID] {
					seen[inc.ID] = true
					out = append(out, inc)
				}
			}
		}
	}
	return out
}
