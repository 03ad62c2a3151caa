package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

type dynamoItem = map[string]types.AttributeValue

func itemText(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func itemNumber(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// otherSystem is how another system keeps positions: its key, hash first, and the item
// of a shard that was read through a sequence number, written at an instant and given
// back or not. Rows of lease/importer's fixtures, with the stream's numbers.
type otherSystem struct {
	key []string
	row func(stream, shard, sequence, owner string, wrote time.Time) dynamoItem
}

var otherSystems = map[string]otherSystem{
	"openflow": {[]string{"streamName", "shardId"}, func(stream, shard, sequence, owner string, wrote time.Time) dynamoItem {
		it := dynamoItem{"streamName": itemText(stream), "shardId": itemText(shard), "sequenceNumber": itemText(sequence), "lastUpdateTimestamp": itemNumber(wrote.UnixMilli())}
		if owner != "" {
			it["leaseOwner"], it["leaseExpiry"] = itemText(owner), itemNumber(wrote.Add(30*time.Second).UnixMilli())
		}
		return it
	}},
	"bento":            {[]string{"StreamID", "ShardID"}, benthosRow},
	"redpanda-connect": {[]string{"StreamID", "ShardID"}, benthosRow},
	"vmware-go-kcl": {[]string{"ShardID"}, func(_, shard, sequence, owner string, wrote time.Time) dynamoItem {
		it := dynamoItem{"ShardID": itemText(shard), "Checkpoint": itemText(sequence), "LeaseTimeout": itemText(wrote.Add(10 * time.Second).Format(time.RFC3339Nano))}
		if owner != "" {
			it["AssignedTo"] = itemText(owner)
		}
		return it
	}},
}

func benthosRow(stream, shard, sequence, owner string, wrote time.Time) dynamoItem {
	it := dynamoItem{"StreamID": itemText(stream), "ShardID": itemText(shard), "SequenceNumber": itemText(sequence)}
	if owner != "" {
		it["ClientID"], it["LeaseTimeout"] = itemText(owner), itemText(wrote.Add(30*time.Second).Format(time.RFC3339Nano))
	}
	return it
}

const importDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: s }
spec: { connector: kinesis, config: { region: us-east-1, endpoint: %q, streams: [orders] } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: d }
spec: { connector: duckdb, config: { path: %q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: app }
spec: { source: { name: s }, destination: { name: d }, leases: %s }
`

// migration is a stream that another system has read in part.
type migration struct {
	t      *testing.T
	server *kinesistest.Server
	db     *dynamodb.Client
	dynamo string
	folder string
	from   otherSystem
}

func newMigration(t *testing.T, from string) *migration {
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	t.Setenv("AWS_REGION", "us-east-1")
	dynamo := dynamotest.Dynalite(t)
	m := &migration{t: t, server: startServer(t, "orders", 2), dynamo: dynamo, db: dynamodb.NewFromConfig(dynamotest.Config(dynamo)), folder: t.TempDir(), from: otherSystems[from]}
	m.makeTable("app", m.from.key...)
	return m
}

func (m *migration) makeTable(name string, key ...string) {
	m.t.Helper()
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, attribute := range key {
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &attribute, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &attribute, AttributeType: types.ScalarAttributeTypeS})
	}
	if _, err := m.db.CreateTable(m.t.Context(), in); err != nil {
		m.t.Fatal(err)
	}
	waiter := dynamodb.NewTableExistsWaiter(m.db, func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 10 * time.Millisecond })
	if err := waiter.Wait(m.t.Context(), &dynamodb.DescribeTableInput{TableName: &name}, time.Minute); err != nil {
		m.t.Fatal(err)
	}
}

// documents writes the pipeline with these leases.
func (m *migration) documents(leases string) string {
	m.t.Helper()
	path := filepath.Join(m.folder, "pipeline.yaml")
	writeFile(m.t, path, fmt.Sprintf(importDocuments, m.server.URL(), filepath.Join(m.folder, "t.duckdb"), leases))
	return path
}

func (m *migration) leases(table string) string {
	return fmt.Sprintf("{ store: dynamodb, failover: 60s, table: %s, aws: { endpoint: %q } }", table, m.dynamo)
}

// put puts a record and returns its sequence number.
func (m *migration) put(shard, data string) string {
	m.t.Helper()
	sequence, err := m.server.PutShard("orders", shard, "k", []byte(data))
	if err != nil {
		m.t.Fatal(err)
	}
	return sequence
}

// read notes that the other system has read a shard through a sequence number.
func (m *migration) read(shard, sequence, owner string, wrote time.Time) {
	m.t.Helper()
	m.putItem("app", m.from.row("orders", shard, sequence, owner, wrote))
}

func (m *migration) putItem(table string, it dynamoItem) {
	m.t.Helper()
	if _, err := m.db.PutItem(m.t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *migration) items(table string) []dynamoItem {
	m.t.Helper()
	out, err := m.db.Scan(context.WithoutCancel(m.t.Context()), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		m.t.Fatal(err)
	}
	return out.Items
}

func (m *migration) tables() []string {
	m.t.Helper()
	out, err := m.db.ListTables(m.t.Context(), &dynamodb.ListTablesInput{})
	if err != nil {
		m.t.Fatal(err)
	}
	return out.TableNames
}

func (m *migration) kinetl(want int, args ...string) (stdout, stderr string) {
	m.t.Helper()
	code, stdout, stderr := kinetlWith("", args...)
	if code != want {
		m.t.Fatalf("kinetl %s: exit code %d, want %d: %s%s", strings.Join(args, " "), code, want, stdout, stderr)
	}
	return stdout, stderr
}

// loaded are the rows of the table by their number.
func (m *migration) loaded() string {
	m.t.Helper()
	out, _ := m.kinetl(exitDone, "query", "--json", filepath.Join(m.folder, "t.duckdb"), `SELECT string_agg(n::VARCHAR, ' ' ORDER BY n) AS all FROM orders`)
	var row struct{ All string }
	if err := json.Unmarshal([]byte(out), &row); err != nil {
		m.t.Fatal(err)
	}
	return row.All
}

// What another system has read is not read again, and what it has not read is: in
// shards that it is in the midst of, behind an aggregate, over a split that it has seen
// and in children that it has not. Its table stays as it was.
func TestImportGoesOnExactlyThere(t *testing.T) {
	for from := range otherSystems {
		t.Run(from, func(t *testing.T) {
			m := newMigration(t, from)
			const a, b = "shardId-000000000000", "shardId-000000000001"
			stopped := time.Now().Add(-10 * time.Minute)
			m.put(a, `{"n":1}`)
			packed := kinesis.Aggregate([]kinesis.AggregateRecord{{PartitionKey: "k", Data: []byte(`{"n":2}`)}, {PartitionKey: "k", Data: []byte(`{"n":3}`)}, {PartitionKey: "k", Data: []byte(`{"n":4}`)}})
			m.read(a, m.put(a, string(packed)), "", stopped)
			m.put(a, `{"n":10}`)
			m.put(b, `{"n":5}`)
			through := m.put(b, `{"n":6}`)
			if from != "openflow" && from != "vmware-go-kcl" { // the others read the rest beside the children
				m.put(b, `{"n":11}`)
			}
			children, err := m.server.Split("orders", b)
			if err != nil {
				t.Fatal(err)
			}
			switch from {
			case "vmware-go-kcl":
				m.read(b, "SHARD_END", "gone", stopped)
			default:
				m.read(b, through, "gone", stopped)
			}
			m.put(children[0], `{"n":7}`)
			m.read(children[0], m.put(children[0], `{"n":8}`), "gone", stopped)
			m.put(children[0], `{"n":12}`)
			m.put(children[1], `{"n":13}`)
			before := m.items("app")

			documents := m.documents(m.leases("leases"))
			args := []string{"import", documents, "--from", from, "--table", "app"}
			out, _ := m.kinetl(exitDone, append(args, "--dry-run")...)
			if strings.Count(out, "would be written") != 4 || slices.Contains(m.tables(), "leases") {
				t.Errorf("a dry run, after which there are tables %v:\n%s", m.tables(), out)
			}
			out, _ = m.kinetl(exitDone, args...)
			if !strings.Contains(out, "4 written, 0 there already") {
				t.Errorf("the import:\n%s", out)
			}
			out, _ = m.kinetl(exitDone, args...)
			if !strings.Contains(out, "0 written, 4 there already") {
				t.Errorf("the import once more:\n%s", out)
			}
			m.kinetl(exitDone, "run", "--once", documents)
			want := "10 12 13"
			if from != "openflow" && from != "vmware-go-kcl" {
				want = "10 11 12 13"
			}
			if got := m.loaded(); got != want {
				t.Errorf("loaded %s, want %s", got, want)
			}
			m.put(a, `{"n":20}`)
			m.kinetl(exitDone, "run", "--once", documents)
			if got := m.loaded(); got != want+" 20" {
				t.Errorf("loaded %s, want %s 20", got, want)
			}
			if after := m.items("app"); !sameItems(before, after) {
				t.Errorf("the other system's table was changed")
			}
			out, _ = m.kinetl(exitDone, args...)
			if !strings.Contains(out, "0 written") || !strings.Contains(out, "there at another position") {
				t.Errorf("an import after the run:\n%s", out)
			}
		})
	}
}

func sameItems(a, b []dynamoItem) bool {
	flat := func(items []dynamoItem) (out []string) {
		for _, it := range items {
			var fields []string
			for name, v := range it {
				switch v := v.(type) {
				case *types.AttributeValueMemberS:
					fields = append(fields, name+"=S"+v.Value)
				case *types.AttributeValueMemberN:
					fields = append(fields, name+"=N"+v.Value)
				}
			}
			slices.Sort(fields)
			out = append(out, strings.Join(fields, ","))
		}
		slices.Sort(out)
		return out
	}
	return len(a) > 0 && slices.Equal(flat(a), flat(b))
}

// Where the application names both tables kinetl's gets another name, and the document
// must say it: with the old one a run is refused.
func TestImportOfATableNamedAsTheApplication(t *testing.T) {
	m := newMigration(t, "openflow")
	m.read("shardId-000000000000", m.put("shardId-000000000000", `{"n":1}`), "", time.Now())
	m.put("shardId-000000000000", `{"n":2}`)
	documents := m.documents(fmt.Sprintf("{ store: dynamodb, aws: { endpoint: %q } }", m.dynamo))
	out, _ := m.kinetl(exitDone, "import", documents, "--from", "openflow")
	if !strings.Contains(out, "leases.table: app-kinetl") || !slices.Contains(m.tables(), "app-kinetl") {
		t.Errorf("tables %v:\n%s", m.tables(), out)
	}
	_, stderr := m.kinetl(exitSurroundings, "run", "--once", documents)
	if !strings.Contains(stderr, "kinetl import FILE --from openflow") {
		t.Error(stderr)
	}
	m.kinetl(exitDone, "run", "--once", m.documents(m.leases("app-kinetl")))
	if got := m.loaded(); got != "2" {
		t.Errorf("loaded %s", got)
	}
}

// Leases in a file are written as well.
func TestImportIntoAFile(t *testing.T) {
	m := newMigration(t, "openflow")
	m.read("shardId-000000000000", m.put("shardId-000000000000", `{"n":1}`), "", time.Now())
	m.put("shardId-000000000000", `{"n":2}`)
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", m.dynamo)
	documents := m.documents(fmt.Sprintf("{ path: %q }", filepath.Join(m.folder, "leases.db")))
	m.kinetl(exitDone, "import", documents, "--from", "openflow")
	m.kinetl(exitDone, "run", "--once", documents)
	if got := m.loaded(); got != "2" {
		t.Errorf("loaded %s", got)
	}
}

// Nothing is written while anything is wrong, and the exit code says what.
func TestImportRefuses(t *testing.T) {
	const shard = "shardId-000000000000"
	m := newMigration(t, "openflow")
	documents := m.documents(m.leases("leases"))
	args := []string{"import", documents, "--from", "openflow", "--table", "app"}
	refused := func(code int, want string, args ...string) {
		t.Helper()
		out, stderr := m.kinetl(code, args...)
		if !strings.Contains(out+stderr, want) {
			t.Errorf("%s%s\nwant %s", out, stderr, want)
		}
		if slices.Contains(m.tables(), "leases") {
			t.Errorf("%v: a lease table was made", args)
		}
	}
	refused(exitFailed, "holds no position", args...)
	refused(exitDocuments, "--from", "import", documents)
	refused(exitDocuments, "--from", "import", documents, "--from", "nifi")
	refused(exitDocuments, "--table", "import", documents, "--from", "bento")
	refused(exitSurroundings, "there is none", "import", documents, "--from", "openflow", "--table", "elsewhere")
	refused(exitFailed, "try --from openflow", "import", documents, "--from", "bento", "--table", "app")

	sequence := m.put(shard, `{"n":1}`)
	m.read(shard, sequence, "node-1", time.Now().Add(-20*time.Second))
	refused(exitFailed, "node-1", args...)
	out, _ := m.kinetl(exitDone, append(args, "--dry-run")...)
	if !strings.Contains(out, "alive: node-1") || !strings.Contains(out, "would be written") {
		t.Errorf("a dry run beside a node:\n%s", out)
	}
	m.read(shard, sequence, "", time.Now())
	m.putItem("app", dynamoItem{"streamName": itemText("orders"), "shardId": itemText("__node__#node-2"), "nodeHeartbeat": itemNumber(time.Now().UnixMilli()), "lastUpdateTimestamp": itemNumber(time.Now().UnixMilli())})
	refused(exitFailed, "node-2", args...)
	m.putItem("app", dynamoItem{"streamName": itemText("orders"), "shardId": itemText("__node__#node-2")})

	m.read("shardId-000000000001", "oldest", "", time.Now())
	refused(exitFailed, "orders shardId-000000000001: attribute sequenceNumber", args...)
	m.read("shardId-000000000001", "1", "", time.Now())
	refused(exitFailed, "is none of the shard's", args...)
	out, _ = m.kinetl(exitFailed, append(args, "--dry-run", "--json")...)
	var report struct {
		Shards []struct{ Shard, Outcome string }
		Faults []struct{ Row, Reason string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Faults) != 1 || report.Faults[0].Row != "orders shardId-000000000001" || len(report.Shards) != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// The other system's table becomes the lease table, under its name, and a run on it goes
// on exactly there; while it holds a part of the leases no worker begins.
func TestImportInPlace(t *testing.T) {
	const shard = "shardId-000000000000"
	m := newMigration(t, "openflow")
	m.read(shard, m.put(shard, `{"n":1}`), "", time.Now())
	m.put(shard, `{"n":2}`)
	backup := filepath.Join(m.folder, "backup.jsonl")
	args := []string{"import", m.documents(m.leases("leases")), "--from", "openflow", "--in-place"}
	m.kinetl(exitDocuments, append(args, "--backup", backup)...) // another lease table
	documents := m.documents(m.leases("app"))
	m.kinetl(exitDocuments, args...) // no backup
	m.kinetl(exitDocuments, "import", documents, "--from", "openflow", "--backup", backup)
	m.kinetl(exitDocuments, "import", documents, "--from", "vmware-go-kcl", "--in-place", "--backup", backup)
	args = append(args, "--backup", backup)

	refused := func(want string) {
		t.Helper()
		out, stderr := m.kinetl(exitFailed, args...)
		if !strings.Contains(out+stderr, want) {
			t.Errorf("%s%s\nwant %s", out, stderr, want)
		}
		if got := m.tables(); !slices.Equal(got, []string{"app"}) {
			t.Errorf("tables %v", got)
		}
	}
	m.putItem("app", m.from.row("payments", shard, "1", "", time.Now()))
	refused("--in-place would delete it")
	m.deleteItem("app", dynamoItem{"streamName": itemText("payments"), "shardId": itemText(shard)})
	records := recordsOf(t, m.server, "orders")
	m.read(shard, records[0].SequenceNumber, "node-1", time.Now())
	args[len(args)-1] = backup + ".2"
	refused("node-1")
	m.read(shard, records[0].SequenceNumber, "", time.Now())
	args[len(args)-1] = backup + ".3"

	m.kinetl(exitDone, append(args, "--dry-run")...)
	if got := m.tables(); !slices.Equal(got, []string{"app"}) {
		t.Errorf("after a dry run there are tables %v", got)
	}
	out, _ := m.kinetl(exitDone, args...)
	if !strings.Contains(out, "1 written") || !slices.Equal(m.tables(), []string{"app"}) {
		t.Errorf("tables %v:\n%s", m.tables(), out)
	}
	m.putItem("app", dynamoItem{"leaseKey": itemText("import:not:finished")})
	_, stderr := m.kinetl(exitFailed, "run", "--once", documents)
	if !strings.Contains(stderr, "import:not:finished") {
		t.Errorf("a worker on a part of the leases: %s", stderr)
	}
	m.kinetl(exitDone, args...)
	m.kinetl(exitDone, "run", "--once", documents)
	if got := m.loaded(); got != "2" {
		t.Errorf("loaded %s", got)
	}
}

func (m *migration) deleteItem(table string, key dynamoItem) {
	m.t.Helper()
	if _, err := m.db.DeleteItem(m.t.Context(), &dynamodb.DeleteItemInput{TableName: &table, Key: key}); err != nil {
		m.t.Fatal(err)
	}
}
