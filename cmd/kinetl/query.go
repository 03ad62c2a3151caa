package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/duckdb/duckdb-go/v2"
	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl"
)

func queryCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "query DATABASE SQL",
		Short: "Look at a DuckDB file that no pipeline has open",
		Long: `Runs one statement on a DuckDB file, read-only, and prints the rows. DuckDB lets
one process in at a time: while a pipeline has the file open, this says so.`,
		Example: `  kinetl query orders.duckdb 'SELECT count(*) FROM orders'`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return exit(exitDocuments, fmt.Errorf("database %s: %w", args[0], err))
			}
			return exit(exitFailed, query(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per row")
	return cmd
}

func query(ctx context.Context, out io.Writer, path, statement string, asJSON bool) error {
	db, err := sql.Open("duckdb", path+"?access_mode=READ_ONLY")
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, statement)
	if err != nil {
		return fmt.Errorf("query %s: %w", path, err)
	}
	defer rows.Close()
	return printRows(out, rows, asJSON)
}

// printRows prints a result as aligned columns, or as one JSON object per row.
func printRows(out io.Writer, rows *sql.Rows, asJSON bool) error {
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
		if asJSON {
			object := make(map[string]any, len(names))
			for i, n := range names {
				object[n] = plain(values[i])
			}
			if err := json.NewEncoder(out).Encode(object); err != nil {
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

// plain is a value that encoding/json prints as it is meant.
func plain(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case duckdb.Decimal:
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
