package dynamolease

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
	"github.com/kinetl/kinetl/lease/leasetest"
)

func TestConformance(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{"dynalite": dynamotest.Dynalite, "moto": dynamotest.Moto} {
		t.Run(name, func(t *testing.T) {
			cfg := dynamotest.Config(start(t))
			table := func(t *testing.T) string {
				return regexp.MustCompile(`[^\w]`).ReplaceAllString(t.Name(), "-")
			}
			leasetest.Run(t, leasetest.Suite{
				Open: func(t *testing.T, _ string) lease.Store {
					return open(t, Options{AWS: cfg, Table: table(t)})
				},
				Set: func(t *testing.T, key, attribute, value string) {
					raw{t, cfg, table(t)}.set(key, attribute, text(value))
				},
				Attribute: func(t *testing.T, key, attribute string) string {
					return strings.TrimPrefix(raw{t, cfg, table(t)}.get(key)[attribute], "S ")
				},
			})
		})
	}
}

// open opens a table with a bound of a call that a busy machine keeps.
func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Failover == 0 {
		o.Failover = time.Minute
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raw is a table as another program sees it.
type raw struct {
	t     *testing.T
	cfg   aws.Config
	table string
}

func (r raw) db() *dynamodb.Client { return dynamodb.NewFromConfig(r.cfg) }

func (r raw) put(it item) {
	r.t.Helper()
	if _, err := r.db().PutItem(r.t.Context(), &dynamodb.PutItemInput{TableName: &r.table, Item: it}); err != nil {
		r.t.Fatal(err)
	}
}

func (r raw) set(key, attribute string, value types.AttributeValue) {
	r.t.Helper()
	_, err := r.db().UpdateItem(r.t.Context(), &dynamodb.UpdateItemInput{
		TableName: &r.table, Key: keyOf(key), UpdateExpression: aws.String("SET #a = :a"),
		ExpressionAttributeNames: map[string]string{"#a": attribute}, ExpressionAttributeValues: item{":a": value},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// get is an item with types and values as text: "S a", "N 1", "SS a b", "B 00ff".
func (r raw) get(key string) map[string]string {
	r.t.Helper()
	got, err := r.db().GetItem(r.t.Context(), &dynamodb.GetItemInput{TableName: &r.table, Key: keyOf(key), ConsistentRead: aws.Bool(true)})
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for name, v := range got.Item {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			out[name] = "S " + v.Value
		case *types.AttributeValueMemberN:
			out[name] = "N " + v.Value
		case *types.AttributeValueMemberB:
			out[name] = fmt.Sprintf("B %x", v.Value)
		case *types.AttributeValueMemberSS:
			out[name] = "SS " + strings.Join(slices.Sorted(slices.Values(v.Value)), " ")
		default:
			r.t.Fatalf("%s is a %T", name, v)
		}
	}
	return out
}

// wire is an HTTP client that counts requests by action, and hands each to fault first,
// which may answer in the server's place.
type wire struct {
	mu      sync.Mutex
	counts  map[string]int
	running int
	most    int
	fault   func(action string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error)
}

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	w.counts[action]++
	w.running++
	w.most = max(w.most, w.running)
	fault := w.fault
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	}()
	send := func() (*http.Response, error) { return http.DefaultClient.Do(r) }
	if fault == nil {
		return send()
	}
	return fault(action, r, send)
}

// reset forgets what was counted, and sets what comes next.
func (w *wire) reset(fault func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts, w.most, w.fault = nil, 0, fault
}

func (w *wire) count() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.counts)
}

// refusal is how DynamoDB answers a request that it does not carry out. Source: its
// developer guide, "Error handling", and dynalite's answers.
func refusal(status int, kind string) *http.Response {
	body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + kind + `","message":"as told by the test"}`
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// bodyOf reads a request's body and leaves it in place.
func bodyOf(t *testing.T, r *http.Request) string {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}

// wired opens a store on a server of its own whose requests go through a wire.
func wired(t *testing.T, endpoint string, o Options) (*Store, *wire) {
	t.Helper()
	w := &wire{}
	o.AWS = dynamotest.Config(endpoint)
	o.AWS.HTTPClient = w
	if o.Table == "" {
		o.Table = "leases"
	}
	return open(t, o), w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func row(key string) lease.Lease { return lease.Lease{Key: key, Checkpoint: lease.TrimHorizon} }

func create(t *testing.T, s *Store, l lease.Lease) lease.Lease {
	t.Helper()
	must(t, s.Create(context.WithoutCancel(t.Context()), l))
	return l
}
