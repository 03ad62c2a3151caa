package kinetl

import "time"

// EventKind names what happened. Log lines and metrics both derive from events.
type EventKind string

const (
	EventSynced        EventKind = "synced"         // leases and shards were read and nothing is left to do; comes even when there is nothing to hold
	EventLeaseTaken    EventKind = "lease_taken"    // this worker reads the shard from now on
	EventLeaseLost     EventKind = "lease_lost"     // another worker has it, or renewal failed for too long
	EventLeaseReleased EventKind = "lease_released" // clean hand-back
	EventOpened        EventKind = "opened"         // reading starts, or starts again, at Position
	EventFetched       EventKind = "fetched"        // one page: Records, Bytes, Lag
	EventCommitted     EventKind = "committed"      // one shard's part is durable: Rows, DeadLetters, Took, Position
	EventDeadLetter    EventKind = "dead_letter"    // one record was set aside: Position, Reason
	EventReopened      EventKind = "reopened"       // reading starts over at the watermark because of Err
	EventRetrying      EventKind = "retrying"       // a call failed and is repeated: Err
	EventSchema        EventKind = "schema_changed" // the table's columns changed: Reason
	EventEnded         EventKind = "shard_ended"    // a closed shard is finished, durably
	EventNote          EventKind = "note"           // something that a person should know and need not act on: Reason
	EventIncident      EventKind = "incident"       // a person is needed: Incident, which says whether the shard is halted
)

// Event is one thing that happened. Fields that do not apply are zero.
type Event struct {
	Kind        EventKind
	At          time.Time
	Shard       ShardID
	Table       string
	Position    Position
	Records     int64
	Rows        int64
	DeadLetters int64
	Bytes       int64
	Lag         time.Duration
	Took        time.Duration
	Reason      string
	Err         error
	Incident    *Incident
}

// observer calls the user's function, if there is one. The function is called from
// many goroutines and must not block.
type observer func(Event)

func (o observer) emit(e Event) {
	if o == nil {
		return
	}
	e.At = time.Now()
	o(e)
}
