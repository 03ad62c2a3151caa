package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	ddb "github.com/duckdb/duckdb-go/v2"
	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/duckdb"
)

func queryCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "query DATABASE SQL",
		Short: "Look at a DuckDB file that no pipeline has open",
		Long: `Runs one statement on a DuckDB file, read-only, and prints the rows. DuckDB lets
one process in at a time: while a pipeline has the file open, this says so.`,
		Example: `  kinetl query orders.duckdb 'SELECT count(*) FROM orders'`,
		Args:    argCount(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return exit(exitDocuments, fmt.Errorf("open database: %w", err))
			}
			err := query(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], asJSON)
			var locked *duckdb.LockedError
			if err != nil {
				if _, reason := duckdb.Check(args[0]); errors.As(reason, &locked) {
					return exit(exitSurroundings, reason)
				}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per row")
	return cmd
}

func query(ctx context.Context, out io.Writer, path, statement string, asJSON bool) error {
	db, err := sql.Open("duckdb", path+"?access_mode=READ_ONLY")
	if err != nil {
		return exit(exitSurroundings, fmt.Errorf("open %s: %w", path, err))
	}
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return exit(exitSurroundings, fmt.Errorf("open %s: %w", path, err))
	}
	if err := printQuery(ctx, out, db, statement, asJSON); err != nil {
		return fmt.Errorf("query %s: %w", path, err)
	}
	return nil
}

// printQuery prints a statement's result as aligned columns, or as one JSON object
// per row.
func printQuery(ctx context.Context, out io.Writer, db *sql.DB, statement string, asJSON bool) error {
	rows, isJSON, err := selectRows(ctx, db, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	return printRows(out, rows, isJSON, asJSON)
}

// selectRows runs a statement and says which of its columns are of type JSON. Those it
// asks for as text: the driver would parse them, which rounds numbers and sorts keys.
func selectRows(ctx context.Context, db *sql.DB, statement string) (rows *sql.Rows, isJSON []bool, err error) {
	if rows, err = db.QueryContext(ctx, statement); err != nil {
		return nil, nil, err
	}
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, nil, errors.Join(err, rows.Close())
	}
	isJSON = make([]bool, len(types))
	columns := make([]string, len(types))
	for i, t := range types {
		isJSON[i] = t.DatabaseTypeName() == "JSON"
		columns[i] = fmt.Sprintf("#%d", i+1)
		if isJSON[i] {
			columns[i] = fmt.Sprintf("CAST(#%d AS VARCHAR)", i+1)
		}
		columns[i] += ` AS "` + strings.ReplaceAll(t.Name(), `"`, `""`) + `"`
	}
	if !slices.Contains(isJSON, true) {
		return rows, isJSON, nil
	}
	if err := rows.Close(); err != nil {
		return nil, nil, err
	}
	text := "SELECT " + strings.Join(columns, ", ") + " FROM (" + strings.TrimRight(statement, "; \t\n") + "\n)"
	rows, err = db.QueryContext(ctx, text)
	return rows, isJSON, err
}

func printRows(out io.Writer, rows *sql.Rows, isJSON []bool, asJSON bool) error {
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, strings.Join(names, "\t"))
	}
	values, targets := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i, v := range values {
			if text, ok := v.(string); ok && isJSON[i] && asJSON {
				values[i] = json.RawMessage(text)
			}
		}
		if asJSON {
			if err := printObject(out, names, values); err != nil {
				return err
			}
			continue
		}
		cells := make([]string, len(names))
		for i, v := range values {
			cells[i] = cell(v)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return w.Flush()
}

// printObject prints a row as a JSON object whose keys stand in the order of columns.
func printObject(out io.Writer, names []string, values []any) error {
	line := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			line = append(line, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		value, isRaw := values[i].(json.RawMessage) // which encoding/json would change
		if !isRaw {
			if value, err = json.Marshal(plain(values[i])); err != nil {
				return fmt.Errorf("column %s: %w", name, err)
			}
		}
		line = append(append(append(line, key...), ':'), value...)
	}
	_, err := out.Write(append(line, "}\n"...))
	return err
}

// plain is a value that encoding/json prints as it is meant.
func plain(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case ddb.Decimal:
		return json.Number(v.String())
	}
	return v
}

// cell is a value on one line of a table, cut where it would drown the rest.
func cell(v any) string {
	var text string
	switch v := plain(v).(type) {
	case nil:
		return "NULL"
	case time.Time:
		text = v.UTC().Format("2006-01-02 15:04:05.000")
	case string:
		text = v
	case float64:
		text = kinetl.FormatDouble(v)
	case map[string]any, []any:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		text = string(b)
	default:
		text = fmt.Sprint(v)
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if r := []rune(text); len(r) > 40 {
		return string(r[:37]) + "..."
	}
	return text
}
