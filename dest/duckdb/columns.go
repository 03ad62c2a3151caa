package duckdb

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/kinetl/kinetl"
)

// column is a column as the catalogue has it.
type column struct {
	kinetl.Column
	typ        string // as DuckDB prints it
	notNull    bool
	hasDefault bool
	primary    bool
	generated  bool

	pendingJSON bool // holds JSON as text until the next Prepare; see widen
}

// classComment prefixes the class in the column's comment. The class is kept there
// because the type does not tell it: BIGINT may be int53 or int64, VARCHAR a string
// or a number. COMMENT is transactional and survives ALTER TYPE.
const classComment = "kinetl: "

// jsonComment marks a text column whose values are JSON already and whose type is
// about to be.
const jsonComment = classComment + "json, as text so far"

// generatedNative stands for the type of a generated column, which takes no value.
const generatedNative = "GENERATED"

// columns reads the table's columns in their order; none if there is no table.
func (t *tx) columns(ctx context.Context, table string) ([]column, error) {
	var out []column
	guarded := false
	err := t.query(ctx, func(scan func(...any) error) error {
		var schemaName, tableName string
		var comment, standard sql.NullString
		var c column
		var nullable bool
		if err := scan(&schemaName, &tableName, &c.Name, &c.typ, &comment, &standard, &nullable); err != nil {
			return err
		}
		// lower() folds all of Unicode, the catalogue ASCII only.
		if kinetl.Fold(schemaName) != kinetl.Fold(t.d.opts.Namespace) || kinetl.Fold(tableName) != kinetl.Fold(table) {
			return nil
		}
		c.notNull, c.hasDefault = !nullable, standard.Valid
		guarded = guarded || c.notNull
		c.Class, c.Cap, c.Native = classOf(c.typ, comment.String)
		c.pendingJSON = comment.String == jsonComment && c.typ == "VARCHAR"
		out = append(out, c)
		return nil
	}, `SELECT schema_name, table_name, column_name, data_type, comment, column_default, is_nullable
		FROM duckdb_columns()
		WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)
		ORDER BY column_index`, t.d.opts.Namespace, table)
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", table, err)
	}
	if guarded {
		if err := t.findPrimaryKey(ctx, table, out); err != nil {
			return nil, err
		}
	}
	return out, t.findGenerated(ctx, table, out)
}

// findPrimaryKey marks the columns that are NOT NULL for good.
func (t *tx) findPrimaryKey(ctx context.Context, table string, columns []column) error {
	err := t.query(ctx, func(scan func(...any) error) error {
		var schemaName, tableName, name string
		if err := scan(&schemaName, &tableName, &name); err != nil {
			return err
		}
		if kinetl.Fold(schemaName) != kinetl.Fold(t.d.opts.Namespace) || kinetl.Fold(tableName) != kinetl.Fold(table) {
			return nil
		}
		for i := range columns {
			columns[i].primary = columns[i].primary || columns[i].Name == name
		}
		return nil
	}, `SELECT schema_name, table_name, unnest(constraint_column_names) FROM duckdb_constraints()
		WHERE database_name = current_database() AND constraint_type = 'PRIMARY KEY'
		AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)`, t.d.opts.Namespace, table)
	if err != nil {
		return fmt.Errorf("read the primary key of %s: %w", table, err)
	}
	return nil
}

// findGenerated marks generated columns. The catalogue shows their expression as a
// default and nothing else; what tells them apart is that no INSERT may name them.
// Binding a statement that inserts no row asks just that, and a statement that does
// not bind leaves the transaction as it was.
func (t *tx) findGenerated(ctx context.Context, table string, columns []column) error {
	for i := range columns {
		c := &columns[i]
		if !c.hasDefault || !c.Cap {
			continue
		}
		_, err := t.exec(ctx, fmt.Sprintf("EXPLAIN INSERT INTO %s (%s) SELECT NULL WHERE false", t.d.table(table), quote(c.Name)))
		switch {
		case err == nil:
		case isRefusal(err) && strings.Contains(err.Error(), "generated column"):
			c.generated, c.Class, c.Native = true, kinetl.Text, generatedNative
		default:
			return fmt.Errorf("look at column %q of %s: %w", c.Name, table, err)
		}
	}
	return nil
}

// schemaOf is the columns as the engine sees them.
func schemaOf(columns []column) kinetl.Schema {
	var out kinetl.Schema
	for _, c := range columns {
		out = append(out, c.Column)
	}
	return out
}

// typeOf is the type of a column that kinetl makes, as DuckDB prints it.
func typeOf(c kinetl.Class) string {
	switch c {
	case kinetl.Empty, kinetl.JSON:
		return "JSON"
	case kinetl.Bool:
		return "BOOLEAN"
	case kinetl.Int53, kinetl.Int64:
		return "BIGINT"
	case kinetl.Decimal:
		return "DECIMAL(38,0)"
	case kinetl.Double:
		return "DOUBLE"
	case kinetl.Timestamp:
		return "TIMESTAMP WITH TIME ZONE"
	case kinetl.Metadata:
		return metadataType()
	}
	return "VARCHAR" // Number, String, Text
}

func metadataType() string {
	fields := kinetl.MetadataType.Fields()
	parts := make([]string, len(fields))
	for i, f := range fields {
		typ := "VARCHAR"
		if f.Type.ID() == arrow.INT64 {
			typ = "BIGINT"
		}
		parts[i] = f.Name + " " + typ
	}
	return "STRUCT(" + strings.Join(parts, ", ") + ")"
}

var decimalType = regexp.MustCompile(`^DECIMAL\((\d+),(\d+)\)$`)

// classOf is the class of a column of the given type and comment. Without kinetl's
// comment, or with one that no longer fits the type, somebody else made the column:
// it is a cap.
func classOf(typ, comment string) (class kinetl.Class, cap bool, native string) {
	if name, ours := strings.CutPrefix(comment, classComment); ours {
		if comment == jsonComment && typ == "VARCHAR" {
			return kinetl.JSON, false, typ
		}
		if class, ok := kinetl.ParseClass(name); ok && typeOf(class) == typ {
			return class, false, ""
		}
	}
	switch typ {
	case "TINYINT", "SMALLINT", "INTEGER", "BIGINT":
		class = kinetl.Int64
	case "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL(38,0)":
		class = kinetl.Decimal
	case "FLOAT", "DOUBLE":
		class = kinetl.Double
	case "JSON":
		class = kinetl.JSON
	case "BOOLEAN":
		class = kinetl.Bool
	default:
		class = kinetl.Text
		if decimalType.MatchString(typ) {
			class = kinetl.Number
		}
	}
	if typeOf(class) != typ {
		native = typ
	}
	return class, true, native
}
