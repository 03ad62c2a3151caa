package kinetl

import "context"

// Destination stores parts in tables. All methods may be called from several
// goroutines, and by several processes at once; at most one Commit per table is in
// flight in one process. Nothing is retried inside: the engine repeats calls, and
// every call must bear it. After any error nothing of the call is stored, except
// that a Commit may have succeeded although its answer was lost; Admit makes the
// repeat harmless.
type Destination interface {
	// Prepare makes the table exist with at least the columns of want, widening
	// classes by Schema.Join under the given policy, and returns the schema in
	// force. A column that can't be widened comes back as it is, with Cap set and, if
	// kinetl made it, Why; one that can't be added, with Cap, Why and class Unset.
	// It is serialized across processes, reads the catalogue before and after
	// (R12), and commits before it returns.
	Prepare(ctx context.Context, table string, want Schema, changes TypeChanges) (Schema, error)

	// Claim comes before the first commit of a shard (R6). In one transaction of
	// its own it checks that every parent is at End (setting it where another
	// system finished the parent), inserts missing watermark rows at their start,
	// and returns what is stored; stored values win. Errors: *UnfinishedParentError,
	// *OtherApplicationError.
	Claim(ctx context.Context, table string, claims []Claim) (Claimed, error)

	// Commit stores rows, dead letters, gaps and watermarks of all parts in one atomic
	// step, admitting them with Admit. It never creates a watermark row. It fails
	// as a whole with *SchemaChangedError when the table's columns are not those
	// of the parts (R9), with *RejectedError when the table refuses rows (R13).
	// The memory of rows serves other rows after the call: what outlives it is a copy.
	Commit(ctx context.Context, table string, parts []Part) (CommitReport, error)

	// Move sets watermarks anywhere, forward or back: compare-and-set, all shards
	// in one transaction, recorded in _kinetl_gaps with the reason (R14). Error:
	// *MovedError when a stored watermark is not From.
	Move(ctx context.Context, table string, moves []Move, reason string) error

	Close() error
}

// RowDeleter is a Destination that can delete the rows that are about to be read again.
type RowDeleter interface {
	Destination

	// MoveAndDelete is Move, and deletes in the same transaction the rows and the dead
	// letters of each shard from the record Again on. Sequence numbers are compared as
	// numbers. With rehearse it says what it would delete, and changes nothing. Errors:
	// those of Move; *UndeletableError when rows can't be told by their records.
	MoveAndDelete(ctx context.Context, table string, moves []Move, reason string, rehearse bool) (map[ShardID]Deleted, error)
}

// Deleted is how much was deleted of one shard.
type Deleted struct{ Rows, DeadLetters int64 }

// Claim asks for the watermark of one shard.
type Claim struct {
	Shard   ShardID
	Start   Position // where a missing row begins; empty: the row must exist already, and is left out of the answer if not
	Parents []ParentClaim
}

// ParentClaim names a parent that must be finished in this table.
type ParentClaim struct {
	Shard ShardID
	Ended bool // another system finished it: Claim sets End itself
}

// Claimed is the answer to Claim.
type Claimed struct {
	Sink    string // random id of this set of tables: tells a replaced file or database from the one that was written to
	Through map[ShardID]Position
}

// CommitReport says what became of the parts, per shard.
type CommitReport struct {
	// Fenced is the shards of which a part, and all later ones, were not stored, with
	// the watermark found (empty: no row). Parts before it may have been.
	Fenced map[ShardID]Position
}

// Move is one watermark to set.
type Move struct {
	Shard    ShardID
	From, To Position
	Again    Position // for MoveAndDelete: the first record that will be read again; empty: none
}
