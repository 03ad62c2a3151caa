package kinetl

import (
	"errors"
	"fmt"
	"time"
)

// ErrLeaseLost is the cause of a shard's context when its lease went to another
// worker or could not be renewed in time.
var ErrLeaseLost = errors.New("lease lost")

// FencedError: the table's watermark is not where this worker left it; another
// worker has the shard. The loop re-opens at the watermark, if it still holds the lease.
type FencedError struct {
	Shard  ShardID
	Table  string
	Stored Position // empty: no watermark row
	After  Position
}

func (e *FencedError) Error() string {
	stored := e.Stored.String()
	if stored == "" {
		stored = "missing"
	}
	return fmt.Sprintf("%s: table %s holds watermark %s where this worker expected %s: another worker has moved the shard", e.Shard, e.Table, stored, e.After)
}

// SchemaChangedError: the table's columns differ from those that rows were built
// for. Nothing was stored; the shards are read again after Prepare (R9).
type SchemaChangedError struct {
	Table  string
	Detail string
}

func (e *SchemaChangedError) Error() string {
	return fmt.Sprintf("table %s changed since its schema was read: %s", e.Table, e.Detail)
}

// RejectedError: the table refused rows of one shard. Nothing was stored; the
// shard is read again with these records marked as dead letters (R13).
type RejectedError struct {
	Shard ShardID
	Table string
	Rows  []RejectedRow // at least one
}

// RejectedRow is a row that the table refused, and its reason in the engine's words.
type RejectedRow struct {
	Position Position
	Reason   string
	Column   string // the capped column that a value does not fit (R28); empty: it is about something else
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("%s: table %s refused %d row(s), the first at %s: %s", e.Shard, e.Table, len(e.Rows), e.Rows[0].Position, e.Rows[0].Reason)
}

// CappedError: a value does not fit a column that is not widened (R28). Its record
// becomes a dead letter with the reason.
type CappedError struct {
	Column Column
	Reason string
}

func (e *CappedError) Error() string { return e.Reason }

// UnfinishedParentError: a parent of a claimed shard is not at End in this table (R8).
type UnfinishedParentError struct {
	Shard, Parent ShardID
	Table         string
	Through       Position // of the parent; empty: no watermark row
}

func (e *UnfinishedParentError) Error() string {
	return fmt.Sprintf("%s: its parent %s is not finished in table %s (watermark %q)", e.Shard, e.Parent.Shard, e.Table, e.Through.String())
}

// OtherApplicationError: a watermark row belongs to another application (R1).
type OtherApplicationError struct {
	Shard              ShardID
	Table, Owner, Mine string
}

func (e *OtherApplicationError) Error() string {
	return fmt.Sprintf("%s: table %s is loaded by application %q, not %q: choose another table, or run once with --adopt to take it over", e.Shard, e.Table, e.Owner, e.Mine)
}

// MovedError: a watermark was not where Move expected it.
type MovedError struct {
	Shard          ShardID
	Table          string
	Stored, Wanted Position
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s: watermark in table %s is %s, not %s: it moved meanwhile, look again", e.Shard, e.Table, e.Stored, e.Wanted)
}

// UndeletableError: the rows that will be read again can't be told from others.
// Nothing was changed.
type UndeletableError struct{ Table, Reason string }

func (e *UndeletableError) Error() string {
	return fmt.Sprintf("rows of table %s can't be deleted by their records: %s; nothing was changed: delete them in the database, then move without deleting", e.Table, e.Reason)
}

// BrokenError: this process can't use the destination any more, whatever it tries.
// The run ends; the next one goes on from the watermarks.
type BrokenError struct{ Cause error }

func (e *BrokenError) Error() string {
	return "the destination can't be used any more by this process, start it again: " + e.Cause.Error()
}

// Unwrap is the destination's own error.
func (e *BrokenError) Unwrap() error { return e.Cause }

// GoneError: the shard's stream was deleted, or created anew under its old name.
type GoneError struct{ Shard ShardID }

func (e *GoneError) Error() string {
	return fmt.Sprintf("%s: the stream was deleted, or deleted and created anew", e.Shard)
}

// ExpiredError: records after the position to resume from have left the stream
// before they were read (R26).
type ExpiredError struct {
	Shard     ShardID
	After     Position
	CaughtUp  time.Time
	Retention time.Duration
	Oldest    string // first sequence number that the shard still has, when known
}

func (e *ExpiredError) Error() string {
	caught := "never"
	if !e.CaughtUp.IsZero() {
		caught = e.CaughtUp.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s: records after %s may have expired unread (retention %s, last caught up: %s)", e.Shard, e.After, e.Retention, caught)
}
