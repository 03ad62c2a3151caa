package importer

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
)

// openflow reads an item of Openflow's or NiFi's ConsumeKinesis. Source:
// KinesisShardManager and LegacyCheckpointMigrator of Apache NiFi. A stop removes
// owner and heartbeat, so that an item without them is nobody's; earlier versions
// also keep a sub-sequence number.
func openflow(it item) (Row, error) {
	f := fields{it: it}
	r := Row{Stream: f.text("streamName"), Shard: f.text("shardId"), Wrote: f.millis("lastUpdateTimestamp")}
	switch node, isNode := strings.CutPrefix(r.Shard, "__node__#"); {
	case isNode:
		r.Shard = ""
		if _, beats := it["nodeHeartbeat"]; beats {
			r.Node, r.Wrote = node, f.millis("nodeHeartbeat")
		}
	case r.Shard == "__migration__":
		r.Shard = ""
		if status := f.text("migrationStatus"); status != "COMPLETE" {
			f.fail("migrationStatus", "is "+strconv.Quote(status)+": the migration of an older table was not finished, and rows may be missing: let the old system finish it")
		}
	default:
		r.Node = f.text("leaseOwner")
		r.Checkpoint, r.Sub = f.checkpoint("sequenceNumber"), Whole
		if _, has := it["subSequenceNumber"]; has {
			r.Sub = f.number("subSequenceNumber")
		}
	}
	return f.done(r, "streamName", "shardId")
}

// benthosLease is the default of lease_period, which LeaseTimeout lies ahead of the
// write that set it.
const benthosLease = 30 * time.Second

// benthos reads an item of the input aws_kinesis of Bento and Redpanda Connect, which
// have it from the same ancestor. Source: input_kinesis_checkpointer.go of both. A
// stop writes the item without ClientID.
func benthos(it item) (Row, error) {
	f := fields{it: it}
	r := Row{Stream: f.text("StreamID"), Shard: f.text("ShardID"), Node: f.text("ClientID")}
	r.Checkpoint, r.Sub = f.checkpoint("SequenceNumber"), Whole
	if end := f.instant("LeaseTimeout"); !end.IsZero() {
		r.Wrote = end.Add(-benthosLease)
	}
	return f.done(r, "StreamID", "ShardID")
}

// vmwareLease is the default of FailoverTimeMillis.
const vmwareLease = 10 * time.Second

// vmware reads an item of vmware-go-kcl, version 1 or 2. Source:
// dynamodb-checkpointer.go of vmware-go-kcl-v2. A stop removes AssignedTo.
func vmware(it item) (Row, error) {
	f := fields{it: it}
	r := Row{Shard: f.text("ShardID"), Node: f.text("AssignedTo")}
	r.Checkpoint, r.Sub = f.checkpoint("Checkpoint"), Whole
	if end := f.instant("LeaseTimeout"); !end.IsZero() {
		r.Wrote = end.Add(-vmwareLease)
	}
	return f.done(r, "ShardID")
}

// fields reads attributes and keeps what is wrong with them. An attribute that is
// empty counts as absent: these systems write both.
type fields struct {
	it     item
	faults []string
}

func (f *fields) fail(name, what string) {
	f.faults = append(f.faults, "attribute "+name+" "+what)
}

// done settles the row, which must have the attributes of its key.
func (f *fields) done(r Row, key ...string) (Row, error) {
	for _, name := range key {
		if _, ok := f.it[name]; !ok {
			f.fail(name, "is missing")
		}
	}
	if r.Checkpoint == "" || isWord(r.Checkpoint) {
		r.Sub = 0
	}
	if len(f.faults) > 0 {
		return r, errors.New(strings.Join(f.faults, ", "))
	}
	return r, nil
}

func (f *fields) text(name string) string {
	v, ok := f.it[name]
	if !ok {
		return ""
	}
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok {
		f.fail(name, "is no string")
		return ""
	}
	return s.Value
}

func (f *fields) number(name string) uint64 {
	v, ok := f.it[name]
	if !ok {
		return 0
	}
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		f.fail(name, "is no number")
		return 0
	}
	value, err := strconv.ParseUint(n.Value, 10, 63)
	if err != nil {
		f.fail(name, "is "+strconv.Quote(n.Value)+", no whole number from 0")
	}
	return value
}

// millis is an instant in milliseconds since the epoch; zero when it is absent.
func (f *fields) millis(name string) time.Time {
	if _, ok := f.it[name]; !ok {
		return time.Time{}
	}
	return time.UnixMilli(int64(f.number(name))).UTC()
}

func (f *fields) instant(name string) time.Time {
	s := f.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		f.fail(name, "is "+strconv.Quote(s)+", no instant")
		return time.Time{}
	}
	return t.UTC()
}

// maxDigits is the longest sequence number that Kinesis allows. Source:
// SequenceNumber pattern 0|([1-9]\d{0,128}) of the API reference.
const maxDigits = 129

func (f *fields) checkpoint(name string) string {
	s := f.text(name)
	switch {
	case s == "" || isWord(s):
	case strings.Trim(s, "0123456789") != "" || len(s) > maxDigits || s[0] == '0' && s != "0":
		f.fail(name, "is "+strconv.Quote(s)+", neither a sequence number nor one of KCL's words")
	}
	return s
}

func isWord(checkpoint string) bool {
	return checkpoint == lease.ShardEnd || lease.IsSentinel(checkpoint)
}
