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
	Key           string   // leaseKey: see Key for its two forms (R23)
	Owner         string   // leaseOwner: worker id; empty when nobody owns it
	Counter       int64    // leaseCounter: changes with every write
	Checkpoint    string   // checkpoint: a decimal sequence number or one of the words above
	Sub           uint64   // checkpointSubSequenceNumber
	OwnerSwitches int64    // ownerSwitchesSinceCheckpoint
	Parents       []string // parentShardId: shard ids, sorted
	Children      []string // childShardIds: shard ids, sorted; KCL writes them when a shard ends, see Ending

	StartingHashKey string // startingHashKey, endingHashKey: decimal, inclusive; KCL
	EndingHashKey   string // looks for holes with them

	// Throughput is throughputKBps, KCL 3's: what the owner reads of the shard, in KiB
	// a second, smoothed. Where leases move, those do that even it out.
	Throughput float64

	// PendingCheckpoint is the first half of a two-phase checkpoint of a KCL
	// application. kinetl makes none; a write that moves Checkpoint or Sub removes
	// it, as in KCL.
	PendingCheckpoint string // pendingCheckpoint
	PendingSub        uint64 // pendingCheckpointSubSequenceNumber

	// CheckpointOwner is set while a KCL 3 worker hands the lease to Owner: it
	// alone may write then. Such a lease is not taken and not run.
	CheckpointOwner string // checkpointOwner

	Stream   string    // kinetlStream: the stream that a key of the short form belongs to, see StreamID (R1, R23)
	Created  time.Time // kinetlCreated: the service's clock in the listing that the row was made from (R26)
	Start    time.Time // kinetlStart: the instant that Latest and AtTimestamp stand for (R19)
	CaughtUp time.Time // kinetlCaughtUp: everything up to here is durable (R3)
	Sink     Sink      // kinetlSink: what Checkpoint stands for, when kinetl wrote it (R15)
	Incident string    // kinetlIncident: JSON list of the shard's open incidents (R24)
	Accepted string    // kinetlAccepted: a person gave up what expired unread after this position, as an incident prints it (R24)
	Signal   string    // kinetlSignal: on the first row, what workers call to each other (R20). Store.Signal alone writes it

	// Foreign tells that the owner is no kinetl worker: a store whose rows others
	// write too finds out when it reads a row (R22). kinetlOwner, which kinetl writes
	// with every change of leaseOwner, then differs from it.
	Foreign bool

	// OwnerGone is set by a store that knows that the owner's process has ended;
	// it is never stored. Such a lease counts as expired at once (R25).
	OwnerGone bool

	// Unreadable is set by a store for a row that it can't make sense of, and says
	// why. Key and Signal are all that is known of it. It is nobody's to write; it
	// keeps its shard's children waiting and its key taken, since nobody knows
	// whether the shard was finished.
	Unreadable string
}

// Sink ties a checkpoint to the table whose watermark it repeats.
type Sink struct {
	ID       string // the destination's random id
	Table    string
	Position string // kinetl.Position that Checkpoint and Sub were derived from
}

// Ended reports whether the shard is finished.
func (l Lease) Ended() bool { return l.Checkpoint == ShardEnd }

// TakenBy is the row as a worker writes it to take it.
func (l Lease) TakenBy(worker string) Lease {
	l.Owner, l.OwnerSwitches, l.CheckpointOwner = worker, l.OwnerSwitches+1, ""
	return l
}

// Written is what a store keeps when next is written over old: it settles what
// follows from the contract of Store.Update and is the same for every store.
func Written(old, next Lease) Lease {
	next.Key, next.Counter, next.Signal, next.OwnerGone = old.Key, old.Counter+1, old.Signal, false
	next.Foreign = old.Foreign && next.Owner == old.Owner
	if next.Checkpoint != old.Checkpoint || next.Sub != old.Sub {
		next.PendingCheckpoint, next.PendingSub = "", 0
	} else {
		next.PendingCheckpoint, next.PendingSub = old.PendingCheckpoint, old.PendingSub
	}
	return next
}

// IsSentinel reports whether a checkpoint is a start rather than a place reached.
func IsSentinel(checkpoint string) bool {
	return checkpoint == TrimHorizon || checkpoint == Latest || checkpoint == AtTimestamp
}

// ErrLost is returned by a conditional write whose condition did not hold: the row
// has another owner or counter than the caller saw, exists already, or is gone.
var ErrLost = errors.New("the lease was changed by another worker")

// ErrBusy is within the error of a call that the store refused again and again, only
// because it has too much to do. It is worth repeating, at the start of a worker too.
var ErrBusy = errors.New("the lease store is busy")

// Store keeps leases. Methods may be called from several goroutines and processes.
// Reads are consistent: they see every write that returned before they began. A
// write that returns an error other than ErrLost may have happened, and one that
// returns ErrLost may have been beaten by the caller's own earlier attempt; Get
// tells. A call ends with its context.
type Store interface {
	// List returns every row, ordered by key.
	List(ctx context.Context) ([]Lease, error)
	Get(ctx context.Context, key string) (l Lease, found bool, err error)
	// Create writes a new row, if there is none with that key.
	Create(ctx context.Context, l Lease) error
	// Update writes next over old, if the row still has old's owner and counter,
	// and returns what is stored: next with old's counter plus one. Attributes
	// that Lease does not know keep their values, and so does Signal, whatever
	// next says; the one that Update returns may be older than the stored one. A
	// change of owner makes the owner kinetl's.
	Update(ctx context.Context, old, next Lease) (Lease, error)
	// Signal sets the signal of a row that exists, whatever its owner and counter
	// are, and leaves all else as it is: who renews the row does not notice.
	// ErrLost: there is no such row.
	Signal(ctx context.Context, key, signal string) error
	// Delete removes the row, if it still has l's owner and counter.
	Delete(ctx context.Context, l Lease) error
}
