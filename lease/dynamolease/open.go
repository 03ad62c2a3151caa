package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Open opens a lease table, creating it on demand when there is none, and waits until
// it can be used. Several processes may do so at once. It refuses a table that is not
// keyed as KCL's is.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := newStore(o)
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Wait, fmt.Errorf("it is not usable after %s", s.o.Wait))
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
		return nil, s.failed("open", err)
	}
	return s, nil
}

// OpenReader opens a lease table to look at. It creates nothing: without a table the
// error is fs.ErrNotExist.
func OpenReader(ctx context.Context, o Options) (*Store, error) {
	s := newStore(o)
	t, err := s.describe(ctx, s.o.Table)
	switch {
	case err != nil:
		return nil, s.failed("open", err)
	case t == nil || t.TableStatus == types.TableStatusCreating:
		return nil, s.failed("open", fmt.Errorf("nothing has run with it yet: %w", fs.ErrNotExist))
	}
	if err := checkKey(t); err != nil {
		return nil, s.failed("open", err)
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	said := ""
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		t, err := s.describe(ctx, s.o.Table)
		if err != nil {
			return err
		}
		status := "absent"
		if t != nil {
			status = strings.ToLower(string(t.TableStatus))
		}
		switch status {
		case "absent":
			s.o.Progress("creating lease table " + s.o.Table)
			if err := s.create(ctx); err != nil {
				return err
			}
		case "active", "updating":
			if err := checkKey(t); err != nil {
				return err
			}
			return s.protect(ctx)
		case "creating", "deleting": // it becomes active, or absent
		default:
			return fmt.Errorf("its status is %s: DynamoDB does not serve it", status)
		}
		if status != said {
			s.o.Progress("lease table " + s.o.Table + " is " + status)
			said = status
		}
		if !wait(ctx, delay) {
			return fmt.Errorf("it is %s: %w", status, ctx.Err())
		}
	}
}

// describe returns nil for a table that does not exist.
func (s *Store) describe(ctx context.Context, table string) (*types.TableDescription, error) {
	var got *dynamodb.DescribeTableOutput
	err := s.control(ctx, read, func(ctx context.Context) (err error) {
		got, err = s.db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
		return err
	})
	var absent *types.ResourceNotFoundException
	if errors.As(err, &absent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return got.Table, nil
}

func (s *Store) create(ctx context.Context) error {
	in := &dynamodb.CreateTableInput{
		TableName:            &s.o.Table,
		BillingMode:          types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("leaseKey"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("leaseKey"), AttributeType: types.ScalarAttributeTypeS}},
	}
	if s.o.DeletionProtection {
		in.DeletionProtectionEnabled = aws.Bool(true)
	}
	for _, name := range slices.Sorted(maps.Keys(s.o.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(name), Value: aws.String(s.o.Tags[name])})
	}
	err := s.control(ctx, written, func(ctx context.Context) error {
		_, err := s.db.CreateTable(ctx, in)
		return err
	})
	var other *types.ResourceInUseException
	if errors.As(err, &other) {
		return nil // another process was faster
	}
	return err
}

// protect turns on point-in-time recovery, if it is asked for. That can't be done in
// the request that creates the table: a process may die in between.
func (s *Store) protect(ctx context.Context) error {
	if !s.o.PointInTimeRecovery {
		return nil
	}
	for {
		var got *dynamodb.DescribeContinuousBackupsOutput
		err := s.control(ctx, read, func(ctx context.Context) (err error) {
			got, err = s.db.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &s.o.Table})
			return err
		})
		if err == nil && recoverable(got.ContinuousBackupsDescription) {
			return nil
		}
		if err == nil {
			err = s.control(ctx, written, func(ctx context.Context) error {
				_, err := s.db.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
					TableName:                        &s.o.Table,
					PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
				})
				return err
			})
		}
		var busy *types.ContinuousBackupsUnavailableException // of a table that is new
		if !errors.As(err, &busy) {
			return err
		}
		if !wait(ctx, time.Second) {
			return fmt.Errorf("turn on point-in-time recovery: %w", err)
		}
	}
}

func recoverable(d *types.ContinuousBackupsDescription) bool {
	return d != nil && d.PointInTimeRecoveryDescription != nil &&
		d.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled
}

// checkKey refuses a table that is somebody else's.
func checkKey(t *types.TableDescription) error {
	kinds := map[string]string{}
	for _, a := range t.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = string(a.AttributeType)
	}
	var key []string
	for _, k := range t.KeySchema {
		name := aws.ToString(k.AttributeName)
		key = append(key, fmt.Sprintf("%s %s %s", strings.ToLower(string(k.KeyType)), name, kinds[name]))
	}
	slices.Sort(key)
	switch have := strings.Join(key, ", "); have {
	case "hash leaseKey S":
		return nil
	case "hash streamName S, range shardId S":
		return errors.New("it holds checkpoints of Openflow or NiFi (hash key streamName, range key shardId), which are kept otherwise than leases: give kinetl another table and bring the positions over with kinetl import FILE --from openflow")
	default:
		return fmt.Errorf("its key is %s, and a lease table's is hash leaseKey S: give kinetl another table", have)
	}
}
