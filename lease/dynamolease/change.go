package dynamolease

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
)

// change is a partial, conditional write: what becomes of which attributes, if what
// holds.
type change struct {
	set        item
	remove     []string
	conditions []string
	names      map[string]string
	values     item
}

func newChange() *change {
	return &change{set: item{}, names: map[string]string{}, values: item{}}
}

// text sets an attribute, or removes it when there is no text.
func (c *change) text(name, s string) {
	if s == "" {
		c.drop(name)
		return
	}
	c.set[name] = text(s)
}

func (c *change) number(name, digits string) {
	c.set[name] = &types.AttributeValueMemberN{Value: digits}
}

// list sets an attribute to a set, which holds each member once, or removes it.
func (c *change) list(name string, members []string) {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 {
		c.drop(name)
		return
	}
	c.set[name] = &types.AttributeValueMemberSS{Value: members}
}

func (c *change) drop(name string) {
	delete(c.set, name)
	c.remove = append(c.remove, name)
}

// when adds a condition on attributes, which it calls #name.
func (c *change) when(condition string, names ...string) {
	c.conditions = append(c.conditions, condition)
	for _, n := range names {
		c.names["#"+n] = n
	}
}

// whenSeen is the condition of every write to a row: it is there, and has the owner
// and the counter that the writer saw. Without the first an update would make a row
// of its own.
func (c *change) whenSeen(l lease.Lease) {
	c.when("attribute_exists(#leaseKey)", "leaseKey")
	c.when("#leaseCounter = :seenCounter", "leaseCounter")
	c.values[":seenCounter"] = &types.AttributeValueMemberN{Value: strconv.FormatInt(l.Counter, 10)}
	if l.Owner == "" {
		c.when("attribute_not_exists(#leaseOwner)", "leaseOwner")
		return
	}
	c.when("#leaseOwner = :seenOwner", "leaseOwner")
	c.values[":seenOwner"] = text(l.Owner)
}

func (c *change) condition() *string {
	s := strings.Join(c.conditions, " AND ")
	return &s
}

// input is the request.
func (c *change) input(table, key string) *dynamodb.UpdateItemInput {
	var set, remove []string
	for name, value := range c.set {
		set = append(set, "#"+name+" = :"+name)
		c.names["#"+name], c.values[":"+name] = name, value
	}
	for _, name := range c.remove {
		remove = append(remove, "#"+name)
		c.names["#"+name] = name
	}
	slices.Sort(set)
	var expression []string
	if len(set) > 0 {
		expression = append(expression, "SET "+strings.Join(set, ", "))
	}
	if len(remove) > 0 {
		expression = append(expression, "REMOVE "+strings.Join(remove, ", "))
	}
	update := strings.Join(expression, " ")
	in := &dynamodb.UpdateItemInput{
		TableName: &table, Key: keyOf(key), UpdateExpression: &update, ConditionExpression: c.condition(), ExpressionAttributeNames: c.names,
	}
	if len(c.values) > 0 {
		in.ExpressionAttributeValues = c.values
	}
	return in
}

// difference is what turns old into next, which lease.Written has settled, on the
// condition that the row is as old was seen.
//
// A row that says SHARD_END meanwhile is left alone, as KCL 1 does: a late checkpoint
// would open the shard again. Only who saw SHARD_END may take it back (R8).
func difference(old, next lease.Lease) *change {
	c := newChange()
	c.whenSeen(old)
	if next.Checkpoint != lease.ShardEnd && old.Checkpoint != lease.ShardEnd {
		c.when("#checkpoint <> :end", "checkpoint")
		c.values[":end"] = text(lease.ShardEnd)
	}
	c.number("leaseCounter", strconv.FormatInt(next.Counter, 10))
	if next.Owner != old.Owner {
		c.text("leaseOwner", next.Owner)
		c.text("kinetlOwner", next.Owner)
	}
	moved := next.Checkpoint != old.Checkpoint || next.Sub != old.Sub
	if moved {
		c.text("checkpoint", next.Checkpoint)
		c.number("checkpointSubSequenceNumber", strconv.FormatUint(next.Sub, 10))
		for _, name := range []string{"pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState"} {
			c.drop(name)
		}
	}
	if moved || next.OwnerSwitches != old.OwnerSwitches {
		c.number("ownerSwitchesSinceCheckpoint", strconv.FormatInt(next.OwnerSwitches, 10))
	}
	if next.Throughput != old.Throughput {
		c.number("throughputKBps", strconv.FormatFloat(next.Throughput, 'f', -1, 64))
	}
	if !slices.Equal(next.Parents, old.Parents) {
		c.list("parentShardId", next.Parents)
	}
	if !slices.Equal(next.Children, old.Children) {
		c.list("childShardIds", next.Children)
	}
	for _, a := range []struct{ name, old, next string }{
		{"startingHashKey", old.StartingHashKey, next.StartingHashKey},
		{"endingHashKey", old.EndingHashKey, next.EndingHashKey},
		{"checkpointOwner", old.CheckpointOwner, next.CheckpointOwner},
		{"kinetlStream", old.Stream, next.Stream},
		{"kinetlCreated", instant(old.Created), instant(next.Created)},
		{"kinetlStart", instant(old.Start), instant(next.Start)},
		{"kinetlCaughtUp", instant(old.CaughtUp), instant(next.CaughtUp)},
		{"kinetlSink", sink(old.Sink), sink(next.Sink)},
		{"kinetlIncident", old.Incident, next.Incident},
		{"kinetlAccepted", old.Accepted, next.Accepted},
	} {
		if a.next != a.old {
			c.text(a.name, a.next)
		}
	}
	return c
}

func sink(s lease.Sink) string {
	if s == (lease.Sink{}) {
		return ""
	}
	b, _ := json.Marshal(s) // three strings: never fails
	return string(b)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
