package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
)

// InPlace makes the other system's table a lease table of the same name, by way of a
// table Table_migration. What it does next follows from the tables and from a phase
// that the latter keeps, so that it goes on wherever an earlier call was cut short,
// and two at once do each other's work.
//
//	            Table       Table_migration
//	            rows        -                 back up, make the copy
//	filling     rows        part of leases    fill it
//	complete    rows        leases            delete Table
//	dropped     -           leases            make it anew, copy
//	copied      leases      leases            delete Table_migration
//	            leases      -                 done
//
// Positions are complete in one of the tables at any time. Table is made anew with
// protection against deletion: DeleteTable has no condition, and a process that was
// stopped right before it would otherwise delete the new table.
type InPlace struct {
	AWS    aws.Config
	Layout Layout
	Table  string
	Backup string // file that gets every item of Table before anything is changed

	// Map makes leases of rows; it refuses what must not be brought over.
	Map func(ctx context.Context, rows []Row, faults []Fault) ([]lease.Lease, error)
	// Make opens a lease table, making it, protected or not, when there is none. Open
	// makes none: its error is then fs.ErrNotExist.
	Make func(ctx context.Context, table string, protected bool) (lease.Store, error)
	Open func(ctx context.Context, table string) (lease.Store, error)
	// Progress tells each step; may be nil.
	Progress func(what string)

	every time.Duration // between looks at tables that change; default 200 ms
}

// phase is how far the migration has come, as the marker in Table_migration says.
type phase string

const (
	filling  phase = "" // there is no marker
	complete phase = "COMPLETE"
	dropped  phase = "DROPPED"
	copied   phase = "COPIED"
)

const (
	leaseTable = "hash leaseKey S"
	// markerKey is of the marker, which says by its entityType that it is no lease.
	markerKey = "__migration__"
	// guardKey is of an item that stands in the new table until it holds all leases:
	// its key has neither of KCL's forms, and kinetl run refuses the table for it. A
	// worker that began with part of the leases would make the others anew.
	guardKey = "import:not:finished"
)

// patience is how long InPlace waits for a table to change.
const patience = 10 * time.Minute

// Run makes the table a lease table and returns when it is.
func (p *InPlace) Run(ctx context.Context) error {
	r := &inPlaceRun{InPlace: p, db: dynamodb.NewFromConfig(p.AWS), beside: p.Table + "_migration"}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %s", patience))
	defer cancel()
	for {
		done, err := r.step(ctx)
		if done && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", p.Table, err)
		}
	}
}

type inPlaceRun struct {
	*InPlace
	db     *dynamodb.Client
	beside string

	leftOver time.Time // when a copy that nobody needs was first seen
}

func (r *inPlaceRun) say(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// step looks at the tables and does what comes next.
func (r *inPlaceRun) step(ctx context.Context) (done bool, err error) {
	key, status, err := r.look(ctx, r.Table)
	if err != nil {
		return false, err
	}
	besideKey, besideStatus, err := r.look(ctx, r.beside)
	if err != nil {
		return false, err
	}
	now := filling
	switch {
	case besideKey == "":
	case besideKey != leaseTable:
		return false, fmt.Errorf("beside it stands %s with the key %s: a migration of %s was not finished: let it finish", r.beside, besideKey, r.Layout.Name)
	case besideStatus == types.TableStatusDeleting:
		return false, r.pause(ctx)
	case besideStatus == types.TableStatusCreating:
	default:
		found := false
		if now, found, err = r.phase(ctx); err != nil {
			return false, err
		}
		if !found {
			return false, r.pause(ctx)
		}
	}
	switch {
	case status == types.TableStatusDeleting || status == types.TableStatusCreating:
		return false, r.pause(ctx)
	case besideKey == "" && key == "":
		return false, fmt.Errorf("there is none in this region and account: %w", fs.ErrNotExist)
	case besideKey == "" && key == leaseTable:
		return true, r.deleteItem(ctx, r.Table, guardKey)
	case key != "" && key != leaseTable && key != r.Layout.key:
		return false, fmt.Errorf("its key is %s, and that of %s is %s", key, r.Layout.Name, r.Layout.key)
	case now == filling && key == leaseTable:
		// Another process may have made it just now, too late, and will find that out.
		if r.leftOver.IsZero() {
			r.leftOver = time.Now()
		}
		if time.Since(r.leftOver) < 10*time.Second {
			return false, r.pause(ctx)
		}
		return false, fmt.Errorf("it is a lease table already, and beside it stands %s, which was never completed: delete that one when the leases are right", r.beside)
	case now == filling && key != r.Layout.key:
		return false, fmt.Errorf("it is gone, and %s may hold part of it only: put it back from the backup", r.beside)
	case now == filling:
		return false, r.fill(ctx)
	case now == complete && key == r.Layout.key:
		return false, r.drop(ctx)
	case now == complete:
		return false, r.mark(ctx, complete, dropped)
	case now == dropped:
		return false, r.restore(ctx, key)
	}
	return false, r.cleanUp(ctx)
}

// look is a table's key and status; no key: there is no such table.
func (r *inPlaceRun) look(ctx context.Context, table string) (key string, status types.TableStatus, err error) {
	got, err := r.db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	var absent *types.ResourceNotFoundException
	if errors.As(err, &absent) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("describe %s: %w", table, err)
	}
	return keyOf(got.Table), got.Table.TableStatus, nil
}

func itemKey(key string) item { return item{"leaseKey": &types.AttributeValueMemberS{Value: key}} }

// phase reads the marker; found is false when the table has gone meanwhile.
func (r *inPlaceRun) phase(ctx context.Context) (now phase, found bool, err error) {
	got, err := r.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &r.beside, Key: itemKey(markerKey), ConsistentRead: aws.Bool(true)})
	if raced(err) {
		return filling, false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read the phase: %w", err)
	}
	f := fields{it: got.Item}
	switch p := phase(f.text("migrationStatus")); p {
	case filling, complete, dropped, copied:
		return p, true, nil
	default:
		return "", false, fmt.Errorf("%s says that its phase is %q, which this version does not know", r.beside, p)
	}
}

// mark moves the phase on, unless another process has.
func (r *inPlaceRun) mark(ctx context.Context, from, to phase) error {
	in := &dynamodb.UpdateItemInput{
		TableName: &r.beside, Key: itemKey(markerKey),
		UpdateExpression: aws.String("SET migrationStatus = :to, entityType = :marker"), ConditionExpression: aws.String("migrationStatus = :from"),
		ExpressionAttributeValues: item{
			":to": &types.AttributeValueMemberS{Value: string(to)}, ":from": &types.AttributeValueMemberS{Value: string(from)},
			":marker": &types.AttributeValueMemberS{Value: "KINETL_IMPORT"},
		},
	}
	if from == filling {
		in.ConditionExpression = aws.String("attribute_not_exists(migrationStatus)")
		delete(in.ExpressionAttributeValues, ":from")
	}
	_, err := r.db.UpdateItem(ctx, in)
	if raced(err) {
		return r.pause(ctx)
	}
	if err != nil {
		return fmt.Errorf("note the phase %s: %w", to, err)
	}
	return nil
}

// raced reports whether another process was faster: the next look tells what is now.
func raced(err error) bool {
	var moved *types.ConditionalCheckFailedException
	var absent *types.ResourceNotFoundException
	var busy *types.ResourceInUseException
	return errors.As(err, &moved) || errors.As(err, &absent) || errors.As(err, &busy) || errors.Is(err, fs.ErrNotExist)
}

// leases is what the rows stand for now, once all of them are in the backup. Its error
// is one of those that raced knows when the table is not the old one any more.
func (r *inPlaceRun) leases(ctx context.Context) ([]lease.Lease, error) {
	items, err := scan(ctx, r.db, r.Table)
	if err != nil {
		return nil, err
	}
	// What was read may be of the new table, made by another process meanwhile.
	if key, _, err := r.look(ctx, r.Table); err != nil || key != r.Layout.key {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	if err := backUp(r.Backup, items); err != nil {
		return nil, err
	}
	rows, faults := r.Layout.rows(items)
	return r.Map(ctx, rows, faults)
}

// fill makes the copy. It is complete only when every lease was seen in it.
func (r *inPlaceRun) fill(ctx context.Context) error {
	leases, err := r.leases(ctx)
	if raced(err) {
		return r.pause(ctx)
	}
	if err != nil {
		return err
	}
	r.say("copying %d position(s) to %s", len(leases), r.beside)
	store, err := r.Make(ctx, r.beside, false)
	if err != nil {
		return err
	}
	if err := r.copy(ctx, store, leases); raced(err) {
		return r.pause(ctx)
	} else if err != nil {
		return err
	}
	if key, _, err := r.look(ctx, r.Table); err != nil || key == leaseTable {
		return errors.Join(err, r.deleteLeftOver(ctx))
	}
	return r.mark(ctx, filling, complete)
}

func (r *inPlaceRun) copy(ctx context.Context, store lease.Store, leases []lease.Lease) error {
	outcomes, err := Write(ctx, store, leases)
	if err != nil {
		return err
	}
	if slices.Contains(outcomes, Differs) {
		return fmt.Errorf("its positions have moved since they were copied to %s: stop the other system, delete %[1]s and begin again", r.beside)
	}
	return nil
}

// deleteLeftOver deletes a copy that this process made anew just now, after another had
// done everything since the rows were read. The copy that the other is still at work
// with has a phase: that one holds the only positions there are, and stays.
func (r *inPlaceRun) deleteLeftOver(ctx context.Context) error {
	now, found, err := r.phase(ctx)
	if err != nil || !found || now != filling {
		return err
	}
	return r.deleteCopy(ctx)
}

// drop deletes the table, if it still says what the copy does.
func (r *inPlaceRun) drop(ctx context.Context) error {
	leases, err := r.leases(ctx)
	if raced(err) {
		return r.pause(ctx)
	}
	if err != nil {
		return err
	}
	store, err := r.Open(ctx, r.beside)
	if err == nil {
		err = r.copy(ctx, store, leases) // of shards that came since
	}
	if raced(err) {
		return r.pause(ctx)
	}
	if err != nil {
		return err
	}
	if now, _, err := r.phase(ctx); err != nil || now != complete {
		return err
	}
	r.say("deleting %s", r.Table)
	_, err = r.db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &r.Table})
	if err == nil || raced(err) {
		return r.pause(ctx)
	}
	if now, _, e := r.phase(ctx); e == nil && now != complete {
		return nil // it is the new table, which is protected
	}
	return fmt.Errorf("delete it: %w", err)
}

// restore makes the table anew and copies the leases into it. After its re-creation
// DynamoDB may describe it for a while as it was before: then it is waited for, since
// nothing in this phase deletes it.
func (r *inPlaceRun) restore(ctx context.Context, key string) error {
	if key == r.Layout.key {
		return r.pause(ctx)
	}
	r.say("making %s anew", r.Table)
	to, err := r.Make(ctx, r.Table, true)
	if err != nil {
		if key, _, e := r.look(ctx, r.Table); e == nil && key == r.Layout.key {
			return r.pause(ctx)
		}
		return err
	}
	if _, err := r.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &r.Table, Item: itemKey(guardKey)}); err != nil {
		return fmt.Errorf("keep workers out: %w", err)
	}
	from, err := r.Open(ctx, r.beside)
	var leases []lease.Lease
	if err == nil {
		leases, err = from.List(ctx)
	}
	if raced(err) {
		return r.pause(ctx) // another process has done all, and the next look lets workers in
	}
	if err != nil {
		return err
	}
	outcomes, err := Write(ctx, to, leases)
	if err != nil {
		return err
	}
	if i := slices.Index(outcomes, Differs); i >= 0 {
		return r.begun(ctx, leases[i].Key)
	}
	return r.mark(ctx, dropped, copied)
}

// begun is the error of a new table that says otherwise than the copy, unless another
// process has brought it to its end meanwhile.
func (r *inPlaceRun) begun(ctx context.Context, key string) error {
	if now, found, err := r.phase(ctx); err != nil || !found || now != dropped {
		return err
	}
	return fmt.Errorf("lease %s is there at another position than in %s: a worker has begun on the new table: stop it, delete the leases in %s, and run this again", key, r.beside, r.Table)
}

// cleanUp lets workers in, and deletes the copy.
func (r *inPlaceRun) cleanUp(ctx context.Context) error {
	if err := r.deleteItem(ctx, r.Table, guardKey); err != nil {
		return err
	}
	return r.deleteCopy(ctx)
}

func (r *inPlaceRun) deleteCopy(ctx context.Context) error {
	r.say("deleting %s", r.beside)
	_, err := r.db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &r.beside})
	if err != nil && !raced(err) {
		return fmt.Errorf("delete %s, which is no longer needed: %w", r.beside, err)
	}
	return r.pause(ctx)
}

func (r *inPlaceRun) deleteItem(ctx context.Context, table, key string) error {
	_, err := r.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table, Key: itemKey(key)})
	if err != nil {
		return fmt.Errorf("let workers in to %s: %w", table, err)
	}
	return nil
}

// pause waits before the next look.
func (r *inPlaceRun) pause(ctx context.Context) error {
	t := time.NewTimer(cmp.Or(r.every, 200*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
