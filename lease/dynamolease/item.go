package dynamolease

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
)

// item is a row as DynamoDB has it.
type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func keyOf(key string) item { return item{"leaseKey": text(key)} }

// encode is the item that a new lease is. As in KCL an attribute without a value is
// absent: no empty texts, no empty sets.
func encode(l lease.Lease) item {
	c := difference(lease.Lease{}, l)
	c.text("leaseKey", l.Key)
	c.number("leaseCounter", strconv.FormatInt(l.Counter, 10))
	c.text("checkpoint", l.Checkpoint)
	c.number("checkpointSubSequenceNumber", strconv.FormatUint(l.Sub, 10))
	c.number("ownerSwitchesSinceCheckpoint", strconv.FormatInt(l.OwnerSwitches, 10))
	c.text("pendingCheckpoint", l.PendingCheckpoint)
	if l.PendingCheckpoint != "" {
		c.number("pendingCheckpointSubSequenceNumber", strconv.FormatUint(l.PendingSub, 10))
	}
	if l.Foreign {
		c.text("kinetlOwner", "")
	}
	c.text("kinetlSignal", l.Signal)
	if k, err := lease.ParseKey(l.Key); err == nil && !k.Short() {
		c.text("streamName", k.StreamName())
		c.text("shardId", k.Shard)
	}
	return c.set
}

// isLeaseItem reports whether an item is a lease. KCL 3.5 keeps other things in the
// table too, and says so; what does not say is a lease, as in every earlier version.
func isLeaseItem(it item) bool {
	if len(it) == 0 {
		return false
	}
	kind, ok := it["entityType"]
	if !ok {
		return true
	}
	s, ok := kind.(*types.AttributeValueMemberS)
	return ok && s.Value == "LEASE"
}

// decode reads a lease. Attributes that it does not know, it does not look at:
// pendingCheckpointState for one, which KCL writes with either of two types.
func decode(it item) (lease.Lease, error) {
	r := reader{it: it}
	l := lease.Lease{
		Key:           r.text("leaseKey"),
		Owner:         r.text("leaseOwner"),
		Counter:       int64(r.number("leaseCounter", 63)),
		Checkpoint:    r.text("checkpoint"),
		Sub:           r.number("checkpointSubSequenceNumber", 64),
		OwnerSwitches: int64(r.number("ownerSwitchesSinceCheckpoint", 63)),
		Parents:       r.set("parentShardId"), Children: r.set("childShardIds"),
		StartingHashKey: r.text("startingHashKey"), EndingHashKey: r.text("endingHashKey"),
		PendingCheckpoint: r.text("pendingCheckpoint"), PendingSub: r.number("pendingCheckpointSubSequenceNumber", 64),
		CheckpointOwner: r.text("checkpointOwner"),
		Throughput:      throughput(it),
		Stream:          r.text("kinetlStream"),
		Created:         r.instant("kinetlCreated"), Start: r.instant("kinetlStart"), CaughtUp: r.instant("kinetlCaughtUp"),
		Incident: r.text("kinetlIncident"), Accepted: r.text("kinetlAccepted"), Signal: r.text("kinetlSignal"),
	}
	l.Foreign = l.Owner != "" && r.text("kinetlOwner") != l.Owner
	if sink := r.text("kinetlSink"); sink != "" && json.Unmarshal([]byte(sink), &l.Sink) != nil {
		r.fail("kinetlSink", "is not kinetl's")
	}
	for _, name := range []string{"leaseCounter", "checkpoint"} {
		if _, ok := it[name]; !ok {
			r.fail(name, "is missing")
		}
	}
	if _, ok := it["checkpoint"]; ok && !isCheckpoint(l.Checkpoint) {
		r.fail("checkpoint", fmt.Sprintf("is %q, neither a sequence number nor one of KCL's words", l.Checkpoint))
	}
	return l, r.err()
}

// throughput is a figure that only the balance looks at: one that makes no sense is none.
func throughput(it item) float64 {
	n, ok := it["throughputKBps"].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || v < 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	return v
}

func isCheckpoint(text string) bool {
	return text == lease.ShardEnd || lease.IsSentinel(text) || text != "" && strings.Trim(text, "0123456789") == ""
}

// unreadable is what is known of a row that could not be decoded.
func unreadable(it item, why error) lease.Lease {
	r := reader{it: it}
	return lease.Lease{
		Key: r.text("leaseKey"), Signal: r.text("kinetlSignal"),
		Unreadable: why.Error(),
	}
}

// reader reads attributes and keeps what is wrong with them.
type reader struct {
	it     item
	faults []string
}

func (r *reader) fail(name, what string) {
	r.faults = append(r.faults, "attribute "+name+" "+what)
}

func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.faults, ", "))
}

func (r *reader) text(name string) string {
	v, ok := r.it[name]
	if !ok {
		return ""
	}
	s, ok := v.(*types.AttributeValueMemberS)
	switch {
	case !ok:
		r.fail(name, "is no string")
	case s.Value == "":
		// Conditions tell an absent attribute from an empty one.
		r.fail(name, "is empty, not absent")
	default:
		return s.Value
	}
	return ""
}

// number reads a whole number of so many bits; 0 when it is absent.
func (r *reader) number(name string, bits int) uint64 {
	v, ok := r.it[name]
	if !ok {
		return 0
	}
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		r.fail(name, "is no number")
		return 0
	}
	value, err := strconv.ParseUint(n.Value, 10, bits)
	if err != nil {
		r.fail(name, "is "+strconv.Quote(n.Value)+", no whole number from 0")
	}
	return value
}

func (r *reader) set(name string) []string {
	v, ok := r.it[name]
	if !ok {
		return nil
	}
	set, ok := v.(*types.AttributeValueMemberSS)
	if !ok {
		r.fail(name, "is no set of strings")
		return nil
	}
	return slices.Sorted(slices.Values(set.Value))
}

func (r *reader) instant(name string) time.Time {
	s := r.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		r.fail(name, "is no instant")
	}
	return t
}
