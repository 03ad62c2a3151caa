package importer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Fault is a row that can't be brought over, and why.
type Fault struct {
	Row    string `json:"row"`
	Reason string `json:"reason"`
}

// Read reads a table of that layout, with consistent reads: rows as they were when it
// was scanned, and faults for items that do not make sense. A table that does not
// exist is fs.ErrNotExist. One that has another key, or beside which the system's own
// migration still stands, is refused.
func Read(ctx context.Context, cfg aws.Config, layout Layout, table string) (rows []Row, faults []Fault, err error) {
	db := dynamodb.NewFromConfig(cfg)
	if err := check(ctx, db, layout, table); err != nil {
		return nil, nil, fmt.Errorf("table %s: %w", table, err)
	}
	items, err := scan(ctx, db, table)
	if err != nil {
		return nil, nil, fmt.Errorf("table %s: %w", table, err)
	}
	rows, faults = layout.rows(items)
	return rows, faults, nil
}

func scan(ctx context.Context, db *dynamodb.Client, table string) (items []item, err error) {
	pages := dynamodb.NewScanPaginator(db, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("read rows: %w", err)
		}
		items = append(items, page.Items...)
	}
	return items, nil
}

// rows reads items.
func (l Layout) rows(items []item) (rows []Row, faults []Fault) {
	for _, it := range items {
		row, err := l.read(it)
		if err != nil {
			faults = append(faults, Fault{row.String(), err.Error()})
			continue
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Row, b.Row) })
	return rows, faults
}

func check(ctx context.Context, db *dynamodb.Client, layout Layout, table string) error {
	got, err := db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	var absent *types.ResourceNotFoundException
	switch {
	case errors.As(err, &absent):
		return fmt.Errorf("there is none in this region and account: %w", fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("describe it: %w", err)
	}
	if key := keyOf(got.Table); key != layout.key {
		return fmt.Errorf("its key is %s, and that of %s is %s%s", key, layout.Name, layout.key, hint(key))
	}
	if layout.migration == "" {
		return nil
	}
	beside, err := db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table + layout.migration)})
	var api smithy.APIError
	switch {
	case err == nil && keyOf(beside.Table) == leaseTable:
		return fmt.Errorf("beside it stands %s%s: it is being imported with --in-place: run that again until it is done", table, layout.migration)
	case err == nil:
		return fmt.Errorf("beside it stands %s%s: the migration of an older table was not finished, and rows may be missing: let %s finish it, or delete that table when you know that it did", table, layout.migration, layout.Name)
	case errors.As(err, &absent), errors.As(err, &api) && strings.HasPrefix(api.ErrorCode(), "AccessDenied"):
		return nil // who may not look there has been given this table alone
	}
	return fmt.Errorf("look for its migration: %w", err)
}

// hint says what a table with such a key is.
func hint(key string) string {
	if key == "hash leaseKey S" {
		return ": these are leases of KCL or kinetl, which kinetl run goes on from as they are"
	}
	for name, l := range Layouts() {
		if l.key == key && name != "redpanda-connect" { // bento has the same
			return fmt.Sprintf(": try --from %s", name)
		}
	}
	return ""
}

func keyOf(t *types.TableDescription) string {
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
	return strings.Join(key, ", ")
}
