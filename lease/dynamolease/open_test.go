package dynamolease

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// Of several processes that open a table at once one creates it, on demand, and all can
// use it. There is no table beside it.
func TestOpenAtOnce(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	var group sync.WaitGroup
	var created atomic.Int32
	for range 8 {
		group.Go(func() {
			s, err := Open(t.Context(), Options{AWS: cfg, Table: "leases", Failover: time.Minute, Progress: func(what string) {
				if strings.Contains(what, "active") {
					created.Add(1)
				}
			}})
			if err == nil {
				_, err = s.List(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got, err := raw{t, cfg, "leases"}.db().DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("leases")})
	must(t, err)
	if m := got.Table.BillingModeSummary; m == nil || m.BillingMode != types.BillingModePayPerRequest {
		t.Errorf("billing: %+v", m)
	}
	create(t, open(t, Options{AWS: cfg, Table: "leases"}), row("s:1"))
	if all, err := open(t, Options{AWS: cfg, Table: "leases"}).List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("opened again: %v, %v", all, err)
	}
	tables, err := raw{t, cfg, ""}.db().ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil || len(tables.TableNames) != 1 {
		t.Errorf("tables %v, %v", tables.TableNames, err)
	}
}

// A table that is keyed otherwise is refused with what it is and what to do.
func TestOtherTables(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	db := dynamodb.NewFromConfig(cfg)
	for table, tt := range map[string]struct {
		key  []string
		kind types.ScalarAttributeType
		want string
	}{
		"openflow": {[]string{"streamName", "shardId"}, types.ScalarAttributeTypeS, "kinetl import FILE --from openflow"},
		"another":  {[]string{"id"}, types.ScalarAttributeTypeS, "hash id S, and a lease table's is hash leaseKey S"},
		"numbers":  {[]string{"leaseKey"}, types.ScalarAttributeTypeN, "hash leaseKey N"},
		"ranged":   {[]string{"leaseKey", "shardId"}, types.ScalarAttributeTypeS, "range shardId S"},
	} {
		in := &dynamodb.CreateTableInput{TableName: &table, BillingMode: types.BillingModePayPerRequest}
		for i, name := range tt.key {
			in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &name, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name, AttributeType: tt.kind})
		}
		_, err := db.CreateTable(t.Context(), in)
		must(t, err)
		_, err = Open(t.Context(), Options{AWS: cfg, Table: table, Failover: time.Minute})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), table) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", table, err)
		}
		if _, err = OpenReader(t.Context(), Options{AWS: cfg, Table: table, Failover: time.Minute}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, to look at: got %v", table, err)
		}
	}
}

// Looking creates nothing.
func TestOpenReader(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	o := Options{AWS: cfg, Table: "leases", Failover: time.Minute}
	if _, err := OpenReader(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	tables, err := dynamodb.NewFromConfig(cfg).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil || len(tables.TableNames) > 0 {
		t.Errorf("tables %v, %v", tables.TableNames, err)
	}
	create(t, open(t, o), row("s:1"))
	s, err := OpenReader(t.Context(), o)
	must(t, err)
	if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("leases %v, %v", all, err)
	}
}

// status makes a table's description say another status.
func status(w *wire, says func() string) {
	w.reset(func(action string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err != nil || action != "DescribeTable" {
			return resp, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		body = bytes.ReplaceAll(body, []byte(`"TableStatus":"ACTIVE"`), []byte(`"TableStatus":"`+says()+`"`))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Del("X-Amz-Crc32")
		return resp, err
	})
}

// A table that is being updated can be used: KCL 3 adds its index while kinetl runs.
// One that is being created or deleted is waited for, with a bound; one that can't be
// used is an error.
func TestTableStatus(t *testing.T) {
	endpoint := dynamotest.Dynalite(t)
	_, w := wired(t, endpoint, Options{})
	cfg := dynamotest.Config(endpoint)
	cfg.HTTPClient = w
	o := Options{AWS: cfg, Table: "leases", Failover: time.Minute}
	status(w, func() string { return "UPDATING" })
	if _, err := Open(t.Context(), o); err != nil {
		t.Error(err)
	}
	var asked atomic.Int32
	status(w, func() string {
		if asked.Add(1) < 3 {
			return "CREATING"
		}
		return "ACTIVE"
	})
	var told []string
	o.Progress = func(what string) { told = append(told, what) }
	if _, err := Open(t.Context(), o); err != nil || asked.Load() != 3 {
		t.Errorf("%v after %d questions", err, asked.Load())
	}
	if len(told) != 1 || told[0] != "lease table leases is creating" {
		t.Errorf("told %q", told)
	}
	status(w, func() string { return "CREATING" })
	o.Wait = 300 * time.Millisecond
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "it is creating") || !strings.Contains(err.Error(), "not usable after 300ms") {
		t.Errorf("got %v", err)
	}
	status(w, func() string { return "INACCESSIBLE_ENCRYPTION_CREDENTIALS" })
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "inaccessible_encryption_credentials") {
		t.Errorf("got %v", err)
	}
}

// What a new table gets: tags, deletion protection, point-in-time recovery; the last
// also one that is there already.
func TestTableOptions(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Moto(t))
	db := dynamodb.NewFromConfig(cfg)
	o := Options{AWS: cfg, Table: "leases", Tags: map[string]string{"team": "data", "app": "orders"}, DeletionProtection: true}
	open(t, o)
	described, err := db.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &o.Table})
	must(t, err)
	if !aws.ToBool(described.Table.DeletionProtectionEnabled) {
		t.Error("the table may be deleted")
	}
	tags, err := db.ListTagsOfResource(t.Context(), &dynamodb.ListTagsOfResourceInput{ResourceArn: described.Table.TableArn})
	if err != nil || len(tags.Tags) != 2 {
		t.Errorf("tags %v, %v", tags, err)
	}
	recovery := func() bool {
		got, err := db.DescribeContinuousBackups(t.Context(), &dynamodb.DescribeContinuousBackupsInput{TableName: &o.Table})
		must(t, err)
		return recoverable(got.ContinuousBackupsDescription)
	}
	if recovery() {
		t.Error("point-in-time recovery was not asked for")
	}
	o.PointInTimeRecovery = true
	for range 2 {
		open(t, o)
		if !recovery() {
			t.Error("no point-in-time recovery")
		}
	}
}
