package lease

import (
	"context"
	"errors"
	"time"
)

// Checkpoints that are not sequence numbers, in KCL's words.
const (
	TrimHorizon = "TRIM_HORIZON"
	Latest      = "LATEST"
	AtTimestamp = "AT_TIMESTAMP"
	ShardEnd    = "SHARD_END"
)

// Lease is one row of the lease table: who reads a shard and how far it has been
// read. Attribute names in stores are KCL's, where KCL has the attribute.
type Lease struct {
	Key           string   // leaseKey: account:stream:creationEpoch:shardId (R23)
	Owner         string   // leaseOwner: worker id; empty when nobody owns it
	Counter       int64    // leaseCounter: changes with every write
	Checkpoint    string   // checkpoint: a decimal sequence number or one of the words above
	Sub           uint64   // checkpointSubSequenceNumber
	OwnerSwitches int64    // ownerSwitchesSinceCheckpoint
	Parents       []string // parentShardId: shard ids, sorted

	Created  time.Time // kinetlCreated: the service's clock in the listing that the row was made from (R26)
	Start    time.Time // kinetlStart: the instant that Latest and AtTimestamp stand for (R19)
	CaughtUp time.Time // kinetlCaughtUp: everything up to here is durable (R3)
	Sink     Sink      // kinetlSink: what Checkpoint stands for, when kinetl wrote it (R15)
	Incident string    // kinetlIncident: JSON list of the shard's open incidents (R24)
	Accepted string    // kinetlAccepted: a person gave up what expired unread after this position, as an incident prints it (R24)

	// OwnerGone is set by a store that knows that the owner's process has ended;
	// it is never stored. Such a lease counts as expired at once (R25).
	OwnerGone bool
}

// Sink ties a checkpoint to the table whose watermark it repeats.
type Sink struct {
	ID       string // the destination's random id
	Table    string
	Position string // kinetl.Position that Checkpoint and Sub were derived from
}

// Ended reports whether the shard is finished.
func (l Lease) Ended() bool { return l.Checkpoint == ShardEnd }

// IsSentinel reports whether a checkpoint is a start rather than a place reached.
func IsSentinel(checkpoint string) bool {
	return checkpoint == TrimHorizon || checkpoint == Latest || checkpoint == AtTimestamp
}

// ErrLost is returned by a conditional write whose condition did not hold: the row
// has another owner or counter than the caller saw, exists already, or is gone.
var ErrLost = errors.New("the lease was changed by another worker")

// Store keeps leases. Methods may be called from several goroutines and processes.
// Reads are consistent: they see every write that returned before they began. A
// write that returns an error other than ErrLost may have happened; Get tells.
type Store interface {
	List(ctx context.Context) ([]Lease, error)
	Get(ctx context.Context, key string) (l Lease, found bool, err error)
	// Create writes a new row, if there is none with that key.
	Create(ctx context.Context, l Lease) error
	// Update writes next over old, if the row still has old's owner and counter,
	// and returns what is stored: next with old's counter plus one. Attributes
	// that Lease does not know keep their values.
	Update(ctx context.Context, old, next Lease) (Lease, error)
	// Delete removes the row, if it still has l's owner and counter.
	Delete(ctx context.Context, l Lease) error
}
