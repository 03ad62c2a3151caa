package importer

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue  { return &types.AttributeValueMemberN{Value: s} }

const (
	seq1 = "49590338271490256608559692538361571095921575989136588898"
	seq2 = "49590338271490256608559692540925702759324208523137515618"
	node = "0b5f0a5e-7c1c-4a36-9d0e-3a1f6f4f2a11"
)

// written is when the fixtures were: 2026-11-30T12:00:00Z.
var written = time.UnixMilli(1796040000000).UTC()

// Rows exactly as each system writes them, and what they say. Source: the update
// expressions of KinesisShardManager and LegacyCheckpointMigrator of Apache NiFi, the
// checkpointers of Bento and Redpanda Connect, and of vmware-go-kcl-v2.
var fixtures = map[string][]struct {
	name string
	it   item
	want Row
}{
	"openflow": {
		{"held and checkpointed",
			item{"streamName": text("orders"), "shardId": text("shardId-000000000000"), "leaseOwner": text(node), "leaseExpiry": num("1796040030000"), "lastUpdateTimestamp": num("1796040000000"), "sequenceNumber": text(seq1)},
			Row{Stream: "orders", Shard: "shardId-000000000000", Checkpoint: seq1, Sub: Whole, Node: node, Wrote: written}},
		{"checkpointed by a version with sub-sequence numbers",
			item{"streamName": text("orders"), "shardId": text("shardId-000000000000"), "leaseOwner": text(node), "leaseExpiry": num("1796040030000"), "lastUpdateTimestamp": num("1796040000000"), "sequenceNumber": text(seq1), "subSequenceNumber": num("3")},
			Row{Stream: "orders", Shard: "shardId-000000000000", Checkpoint: seq1, Sub: 3, Node: node, Wrote: written}},
		{"given back",
			item{"streamName": text("orders"), "shardId": text("shardId-000000000001"), "lastUpdateTimestamp": num("1796040000000"), "sequenceNumber": text(seq2)},
			Row{Stream: "orders", Shard: "shardId-000000000001", Checkpoint: seq2, Sub: Whole, Wrote: written}},
		{"taken, nothing read",
			item{"streamName": text("orders"), "shardId": text("shardId-000000000002"), "leaseOwner": text(node), "leaseExpiry": num("1796040030000"), "lastUpdateTimestamp": num("1796040000000")},
			Row{Stream: "orders", Shard: "shardId-000000000002", Node: node, Wrote: written}},
		{"a word that an early migration copied",
			item{"streamName": text("orders"), "shardId": text("shardId-000000000002"), "lastUpdateTimestamp": num("1796040000000"), "sequenceNumber": text("SHARD_END")},
			Row{Stream: "orders", Shard: "shardId-000000000002", Checkpoint: lease.ShardEnd, Wrote: written}},
		{"heartbeat",
			item{"streamName": text("orders"), "shardId": text("__node__#" + node), "nodeHeartbeat": num("1796040000000"), "lastUpdateTimestamp": num("1796040000000")},
			Row{Stream: "orders", Node: node, Wrote: written}},
		{"heartbeat of a node that stopped",
			item{"streamName": text("orders"), "shardId": text("__node__#" + node)},
			Row{Stream: "orders"}},
		{"a migration that was finished",
			item{"streamName": text("orders"), "shardId": text("__migration__"), "migrationStatus": text("COMPLETE"), "migrationOwner": text(node), "migrationStartedAt": num("1796040000000"), "migrationCompletedAt": num("1796040000000"), "lastUpdateTimestamp": num("1796040000000")},
			Row{Stream: "orders", Wrote: written}},
	},
	"bento": {
		{"held and checkpointed",
			item{"StreamID": text("orders"), "ShardID": text("shardId-000000000000"), "SequenceNumber": text(seq1), "ClientID": text(node), "LeaseTimeout": text("2026-11-30T13:00:30.000000001+01:00")},
			Row{Stream: "orders", Shard: "shardId-000000000000", Checkpoint: seq1, Sub: Whole, Node: node, Wrote: written.Add(1)}},
		{"claimed, nothing read",
			item{"StreamID": text("orders"), "ShardID": text("shardId-000000000000"), "ClientID": text(node), "LeaseTimeout": text("2026-11-30T12:00:30Z")},
			Row{Stream: "orders", Shard: "shardId-000000000000", Node: node, Wrote: written}},
		{"given back",
			item{"StreamID": text("arn:aws:kinesis:eu-west-1:111122223333:stream/orders"), "ShardID": text("shardId-000000000000"), "SequenceNumber": text(seq1)},
			Row{Stream: "arn:aws:kinesis:eu-west-1:111122223333:stream/orders", Shard: "shardId-000000000000", Checkpoint: seq1, Sub: Whole}},
	},
	"vmware-go-kcl": {
		{"held and checkpointed",
			item{"ShardID": text("shardId-000000000001"), "AssignedTo": text("worker-1"), "LeaseTimeout": text("2026-11-30T12:00:10Z"), "Checkpoint": text(seq1), "ParentShardId": text("shardId-000000000000")},
			Row{Shard: "shardId-000000000001", Checkpoint: seq1, Sub: Whole, Node: "worker-1", Wrote: written}},
		{"taken, nothing read",
			item{"ShardID": text("shardId-000000000001"), "AssignedTo": text("worker-1"), "LeaseTimeout": text("2026-11-30T12:00:10Z")},
			Row{Shard: "shardId-000000000001", Node: "worker-1", Wrote: written}},
		{"claimed by another, nothing read",
			item{"ShardID": text("shardId-000000000001"), "AssignedTo": text("worker-1"), "LeaseTimeout": text("2026-11-30T12:00:10Z"), "Checkpoint": text(""), "ClaimRequest": text("worker-2")},
			Row{Shard: "shardId-000000000001", Node: "worker-1", Wrote: written}},
		{"given back",
			item{"ShardID": text("shardId-000000000001"), "LeaseTimeout": text("2026-11-30T12:00:10Z"), "Checkpoint": text(seq1)},
			Row{Shard: "shardId-000000000001", Checkpoint: seq1, Sub: Whole, Wrote: written}},
		{"finished",
			item{"ShardID": text("shardId-000000000001"), "AssignedTo": text("worker-1"), "LeaseTimeout": text("2026-11-30T12:00:10Z"), "Checkpoint": text("SHARD_END")},
			Row{Shard: "shardId-000000000001", Checkpoint: lease.ShardEnd, Node: "worker-1", Wrote: written}},
	},
}

func TestRowsOfEachSystem(t *testing.T) {
	for from, rows := range fixtures {
		for _, x := range rows {
			got, err := Layouts()[from].read(x.it)
			if err != nil || got != x.want {
				t.Errorf("%s, %s: %+v, %v\nwant %+v", from, x.name, got, err, x.want)
			}
		}
	}
}

// What can't be a position is a fault, which names the attribute.
func TestRowsThatAreNotUnderstood(t *testing.T) {
	for _, x := range []struct {
		from, attribute string
		value           types.AttributeValue
	}{
		{"openflow", "sequenceNumber", text("-1")},
		{"openflow", "sequenceNumber", text("007")},
		{"openflow", "sequenceNumber", text(strings.Repeat("9", 130))},
		{"openflow", "sequenceNumber", num("1")},
		{"openflow", "subSequenceNumber", num("1.5")},
		{"openflow", "subSequenceNumber", num("18446744073709551615")},
		{"openflow", "lastUpdateTimestamp", text("now")},
		{"bento", "SequenceNumber", text("oldest")},
		{"bento", "LeaseTimeout", text("tomorrow")},
		{"bento", "ShardID", nil},
		{"vmware-go-kcl", "Checkpoint", text("shard_end")},
		{"vmware-go-kcl", "ShardID", nil},
	} {
		it := item{}
		for k, v := range fixtures[x.from][0].it {
			it[k] = v
		}
		it[x.attribute] = x.value
		if x.value == nil {
			delete(it, x.attribute)
		}
		if got, err := Layouts()[x.from].read(it); err == nil || !strings.Contains(err.Error(), x.attribute) {
			t.Errorf("%s with %s %+v: %+v, %v", x.from, x.attribute, x.value, got, err)
		}
	}
	half := item{"streamName": text("orders"), "shardId": text("__migration__"), "migrationStatus": text("IN_PROGRESS")}
	if _, err := openflow(half); err == nil {
		t.Error("a migration that was not finished is no fault")
	}
}

// Who wrote within a minute and gave nothing back is alive; a clean stop is seen at
// once.
func TestAlive(t *testing.T) {
	rows := []Row{
		{Shard: "a", Node: "dead", Wrote: written.Add(-time.Minute)},
		{Shard: "b", Node: "alive", Wrote: written.Add(-59 * time.Second)},
		{Node: "alive", Wrote: written.Add(-10 * time.Second)},
		{Shard: "c", Wrote: written},
		{Shard: "d", Node: "ahead", Wrote: written.Add(time.Hour)},
	}
	want := []string{"alive (2026-11-30T11:59:50Z)", "ahead (2026-11-30T13:00:00Z)"}
	if got := Alive(rows, written); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// makeTable makes a table with a key such as "hash a S, range b S".
func makeTable(t *testing.T, db *dynamodb.Client, name, key string) {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for part := range strings.SplitSeq(key, ", ") {
		f := strings.Fields(part)
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &f[1], KeyType: types.KeyType(strings.ToUpper(f[0]))})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &f[1], AttributeType: types.ScalarAttributeType(f[2])})
	}
	_, err := db.CreateTable(t.Context(), in)
	must(t, err)
	must(t, dynamodb.NewTableExistsWaiter(db, func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 10 * time.Millisecond }).
		Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &name}, time.Minute))
}

func put(t *testing.T, db *dynamodb.Client, table string, it item) {
	t.Helper()
	_, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it})
	must(t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A table is read over as many pages as it has; what can't be read is named.
func TestRead(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	db := dynamodb.NewFromConfig(cfg)
	layout := Layouts()["openflow"]
	if _, _, err := Read(t.Context(), cfg, layout, "app"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a table that does not exist: %v", err)
	}
	makeTable(t, db, "app", layout.key)
	const shards = 40 // of 50 KB: three pages
	for i := range shards {
		put(t, db, "app", item{"streamName": text("orders"), "shardId": text("shardId-0000000000" + string(rune('0'+i/10)) + string(rune('0'+i%10))),
			"sequenceNumber": text(seq1), "ballast": text(strings.Repeat("x", 50<<10))})
	}
	put(t, db, "app", item{"streamName": text("orders"), "shardId": text("shardId-000000000099"), "sequenceNumber": text("?")})
	rows, faults, err := Read(t.Context(), cfg, layout, "app")
	must(t, err)
	if len(rows) != shards || len(faults) != 1 || faults[0].Row != "orders shardId-000000000099" {
		t.Errorf("%d rows, faults %v", len(rows), faults)
	}
	makeTable(t, db, "app_migration", layout.key)
	if _, _, err := Read(t.Context(), cfg, layout, "app"); err == nil || !strings.Contains(err.Error(), "app_migration") {
		t.Errorf("beside a migration: %v", err)
	}
	for from, hint := range map[string]string{"bento": "--from openflow", "vmware-go-kcl": "--from openflow"} {
		if _, _, err := Read(t.Context(), cfg, Layouts()[from], "app"); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("as a table of %s: %v", from, err)
		}
	}
	makeTable(t, db, "kcl", "hash leaseKey S")
	if _, _, err := Read(t.Context(), cfg, layout, "kcl"); err == nil || !strings.Contains(err.Error(), "kinetl run") {
		t.Errorf("a table of KCL: %v", err)
	}
}

// Leases are created once; what is there already stays as it is.
func TestWrite(t *testing.T) {
	store, err := dynamolease.Open(t.Context(), dynamolease.Options{AWS: dynamotest.Config(dynamotest.Dynalite(t)), Table: "leases", Failover: time.Minute})
	must(t, err)
	leases := []lease.Lease{
		{Key: "1:orders:1:a", Checkpoint: seq1, Sub: Whole},
		{Key: "1:orders:1:b", Checkpoint: lease.Latest, Start: written},
		{Key: "1:orders:1:c", Checkpoint: lease.TrimHorizon},
	}
	moved := leases[2]
	moved.Checkpoint, moved.Owner = seq2, "w"
	must(t, store.Create(t.Context(), moved))
	for i, want := range [][]Outcome{{Written, Written, Differs}, {Exists, Exists, Differs}} {
		got, err := Write(t.Context(), store, leases)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("call %d: %v, %v, want %v", i+1, got, err, want)
		}
	}
	have, _, err := store.Get(t.Context(), moved.Key)
	if err != nil || have.Checkpoint != seq2 || have.Owner != "w" {
		t.Errorf("what was there became %+v, %v", have, err)
	}
	all, err := store.List(t.Context())
	if err != nil || len(all) != 3 || all[0].Sub != Whole || all[0].Foreign || !all[1].Start.Equal(written) {
		t.Errorf("stored %+v, %v", all, err)
	}
}

// Whatever an item holds, reading it ends in a row that Map can take or in a fault.
func FuzzRow(f *testing.F) {
	for i, from := range []string{"openflow", "bento", "redpanda-connect", "vmware-go-kcl"} {
		for _, x := range fixtures[from] {
			for _, v := range x.it {
				if s, ok := v.(*types.AttributeValueMemberS); ok {
					f.Add(uint8(i), s.Value, s.Value, s.Value, "1796040000000", false)
				}
			}
		}
	}
	f.Add(uint8(0), "__node__#", "1", "", "-1", true)
	f.Fuzz(func(t *testing.T, from uint8, shard, checkpoint, other, number string, mixed bool) {
		name := []string{"openflow", "bento", "redpanda-connect", "vmware-go-kcl"}[from%4]
		it := item{}
		for _, a := range []string{"shardId", "ShardID"} {
			it[a] = text(shard)
		}
		for _, a := range []string{"sequenceNumber", "SequenceNumber", "Checkpoint"} {
			it[a] = text(checkpoint)
		}
		for _, a := range []string{"streamName", "StreamID", "leaseOwner", "ClientID", "AssignedTo", "LeaseTimeout", "migrationStatus"} {
			it[a] = text(other)
		}
		for _, a := range []string{"lastUpdateTimestamp", "nodeHeartbeat", "leaseExpiry", "subSequenceNumber"} {
			it[a] = num(number)
			if mixed {
				it[a] = text(number)
			}
		}
		r, err := Layouts()[name].read(it)
		_ = r.String()
		if err != nil {
			return
		}
		if r.Checkpoint != "" && !isWord(r.Checkpoint) && (len(r.Checkpoint) > maxDigits || strings.Trim(r.Checkpoint, "0123456789") != "") {
			t.Errorf("%s: checkpoint %q", name, r.Checkpoint)
		}
		if r.Sub > Whole || (r.Checkpoint == "" || isWord(r.Checkpoint)) && r.Sub != 0 {
			t.Errorf("%s: sub-sequence %d at %q", name, r.Sub, r.Checkpoint)
		}
		Alive([]Row{r}, written)
		Map(Layouts()[name], []Row{r, r}, chain(r.Stream), lease.Start{Checkpoint: lease.TrimHorizon})
	})
}
