// Package dynamolease keeps leases in a DynamoDB table as the Kinesis Client Library
// (KCL) keeps them: same key, same attributes, same types, so that workers of either
// kind go on where the other stopped. What kinetl needs beyond that are attributes
// whose names begin with kinetl, which KCL leaves alone as kinetl leaves alone what it
// does not know: rows are written in part, never over.
//
// docs/dynamodb.md has the layout, the permissions and the cost.
package dynamolease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
)

// Options says where the leases are. AWS and Table must be set.
type Options struct {
	// AWS is how to reach DynamoDB. Its HTTP client should keep at least Concurrency
	// idle connections per host, or renewals pay for a TLS handshake each.
	AWS   aws.Config
	Table string

	Failover    time.Duration // of the application's workers; default 10 s
	Call        time.Duration // bound of one call, throttled attempts included; default a third of Failover, and at most that
	Concurrency int           // most requests at a time; default 64, enough for 2,500 leases

	// What a table gets that Open creates. PointInTimeRecovery is also turned on for
	// a table that exists.
	Tags                map[string]string
	DeletionProtection  bool
	PointInTimeRecovery bool
	Wait                time.Duration // for the table to become usable; default 600 s, as KCL's

	// Where KCL 3.0 to 3.4 keep what is not a lease; default Table with KCL's endings.
	CoordinatorTable, MetricsTable string

	Progress   func(what string)     // of Open; may be nil
	Unreadable func(key, why string) // called once for each row that can't be read; may be nil
}

func (o Options) withDefaults() Options {
	o.Failover = cmp.Or(o.Failover, 10*time.Second)
	o.Call = min(cmp.Or(o.Call, o.Failover/3), o.Failover/3)
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	o.Wait = cmp.Or(o.Wait, 600*time.Second)
	o.CoordinatorTable = cmp.Or(o.CoordinatorTable, o.Table+"-CoordinatorState")
	o.MetricsTable = cmp.Or(o.MetricsTable, o.Table+"-WorkerMetricStats")
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Unreadable == nil {
		o.Unreadable = func(string, string) {}
	}
	return o
}

// Store is a lease.Store in a DynamoDB table. It starts no goroutines and needs no
// closing.
//
// A write whose answer was lost returns an error other than lease.ErrLost, and may
// have happened; if it had, repeating it returns lease.ErrLost. Who keeps a lease
// looks the row up in both cases, and finds its own write or another's.
type Store struct {
	o     Options
	db    *dynamodb.Client
	slots chan struct{} // one per request that may run

	mu       sync.Mutex
	reported map[string]bool // keys of rows that can't be read
}

func newStore(o Options) *Store {
	o = o.withDefaults()
	return &Store{
		o: o,
		// Attempts are repeated by Store.call, which knows what may be.
		db:       dynamodb.NewFromConfig(o.AWS, func(d *dynamodb.Options) { d.Retryer = aws.NopRetryer{} }),
		slots:    make(chan struct{}, o.Concurrency),
		reported: map[string]bool{},
	}
}

// List returns every row, ordered by key. Items that are no leases are left out.
func (s *Store) List(ctx context.Context) ([]lease.Lease, error) {
	var out []lease.Lease
	var from item
	for {
		var page *dynamodb.ScanOutput
		err := s.call(ctx, read, func(ctx context.Context) (err error) {
			page, err = s.db.Scan(ctx, &dynamodb.ScanInput{TableName: &s.o.Table, ConsistentRead: aws.Bool(true), ExclusiveStartKey: from})
			return err
		})
		if err != nil {
			return nil, s.failed("read leases", err)
		}
		for _, it := range page.Items {
			if l, isLease := s.decode(it); isLease {
				out = append(out, l)
			}
		}
		if from = page.LastEvaluatedKey; len(from) == 0 {
			break
		}
	}
	slices.SortFunc(out, func(a, b lease.Lease) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// Get returns one row.
func (s *Store) Get(ctx context.Context, key string) (lease.Lease, bool, error) {
	it, err := s.get(ctx, s.o.Table, keyOf(key))
	if err != nil {
		return lease.Lease{}, false, s.failed("read lease "+key, err)
	}
	l, isLease := s.decode(it)
	return l, isLease, nil
}

// get reads an item of any table; nil if there is none.
func (s *Store) get(ctx context.Context, table string, key item) (item, error) {
	var got *dynamodb.GetItemOutput
	err := s.call(ctx, read, func(ctx context.Context) (err error) {
		got, err = s.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})
		return err
	})
	if err != nil {
		return nil, err
	}
	return got.Item, nil
}

// decode reads an item as a lease; isLease is false for what is none. A row that
// can't be read is told once.
func (s *Store) decode(it item) (l lease.Lease, isLease bool) {
	if !isLeaseItem(it) {
		return l, false
	}
	l, err := decode(it)
	if err == nil {
		return l, true
	}
	l = unreadable(it, err)
	s.mu.Lock()
	first := !s.reported[l.Key]
	s.reported[l.Key] = true
	s.mu.Unlock()
	if first {
		s.o.Unreadable(l.Key, l.Unreadable)
	}
	return l, true
}

// Create adds a row.
func (s *Store) Create(ctx context.Context, l lease.Lease) error {
	return s.write(ctx, "create lease "+l.Key, func(ctx context.Context) error {
		_, err := s.db.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &s.o.Table, Item: encode(l), ConditionExpression: aws.String("attribute_not_exists(leaseKey)"),
		})
		return err
	})
}

// Update writes the difference between old and next.
func (s *Store) Update(ctx context.Context, old, next lease.Lease) (lease.Lease, error) {
	if old.Unreadable != "" {
		return lease.Lease{}, s.failed("update lease "+old.Key, errUnreadable)
	}
	next = lease.Written(old, next)
	in := difference(old, next).input(s.o.Table, old.Key)
	err := s.write(ctx, "update lease "+old.Key, func(ctx context.Context) error {
		_, err := s.db.UpdateItem(ctx, in)
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return next, nil
}

// errUnreadable is why a row that can't be read is not written: its owner and counter
// are not known, and zero values may just fit.
var errUnreadable = fmt.Errorf("the row can't be read: %w", lease.ErrLost)

// Signal sets a row's signal.
func (s *Store) Signal(ctx context.Context, key, signal string) error {
	c := newChange()
	c.text("kinetlSignal", signal)
	c.when("attribute_exists(#leaseKey)", "leaseKey")
	in := c.input(s.o.Table, key)
	return s.write(ctx, "signal on lease "+key, func(ctx context.Context) error {
		_, err := s.db.UpdateItem(ctx, in)
		return err
	})
}

// Delete removes a row. One that was finished when it was seen must still be: KCL
// deletes without a condition, and a row of that key may be another's since.
func (s *Store) Delete(ctx context.Context, l lease.Lease) error {
	if l.Unreadable != "" {
		return s.failed("delete lease "+l.Key, errUnreadable)
	}
	c := newChange()
	c.whenSeen(l)
	if l.Ended() {
		c.when("#checkpoint = :end", "checkpoint")
		c.values[":end"] = text(lease.ShardEnd)
	}
	return s.write(ctx, "delete lease "+l.Key, func(ctx context.Context) error {
		_, err := s.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &s.o.Table, Key: keyOf(l.Key), ConditionExpression: c.condition(),
			ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
		})
		return err
	})
}

func (s *Store) write(ctx context.Context, what string, do func(context.Context) error) error {
	err := s.call(ctx, written, do)
	var lost *types.ConditionalCheckFailedException
	if errors.As(err, &lost) {
		err = lease.ErrLost
	}
	if err != nil {
		return s.failed(what, err)
	}
	return nil
}

func (s *Store) failed(what string, err error) error {
	return fmt.Errorf("lease table %s: %s: %w", s.o.Table, what, err)
}
