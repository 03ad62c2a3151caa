package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/kinetl/kinetl"
)

// column is a column as the catalogue has it. Its Name is the engine's: a key that is
// no identifier as it stands is kept in the column's comment.
type column struct {
	kinetl.Column
	name       string // in the catalogue
	typ        string // as PostgreSQL prints it
	oid        uint32 // of the type; of a domain, of what is below it
	typmod     int32
	enum       bool
	citext     bool
	notNull    bool
	hasDefault bool
	fixed      bool // NOT NULL for good: part of the primary key, or an identity
	generated  bool
}

// relation is a table as the catalogue has it.
type relation struct {
	oid     uint32 // 0: there is none
	kind    string // as in pg_class.relkind
	used    int    // numbers of columns that are taken, by dropped ones too
	columns []column
}

// classComment prefixes the class in the column's comment. The class is kept there
// because the type does not tell it: bigint may be int53 or int64, text a string or a
// number. A comment survives ALTER TYPE, and pg_dump.
const classComment = "kinetl: "

// keyComment stands between the class and a key that the column's name does not give.
const keyComment = " for key "

// generatedNative stands for the type of a generated column, which takes no value.
const generatedNative = "generated"

// relation reads a table and its columns in their order, given its name in the
// catalogue.
func (t *tx) relation(ctx context.Context, name string) (relation, error) {
	var r relation
	err := t.query(ctx, func(scan func(...any) error) error {
		var c struct {
			column
			comment string
			attr    *string // NULL where a table has no columns
		}
		err := scan(&r.oid, &r.kind, &r.used, &c.attr, &c.typ, &c.oid, &c.typmod, &c.comment, &c.notNull, &c.hasDefault, &c.fixed, &c.generated, &c.enum, &c.citext)
		if err != nil || c.attr == nil {
			return err
		}
		c.name = *c.attr
		c.identify(c.comment)
		r.columns = append(r.columns, c.column)
		return nil
	}, `SELECT c.oid, c.relkind::text, c.relnatts, a.attname,
			coalesce(format_type(a.atttypid, a.atttypmod), ''),
			coalesce(CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, 0),
			coalesce(CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END, 0),
			coalesce(col_description(c.oid, a.attnum), ''),
			coalesce(a.attnotnull, false), coalesce(a.atthasdef OR a.attidentity <> '', false),
			coalesce(a.attidentity <> '' OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY(i.indkey)), false),
			coalesce(a.attgenerated <> '', false),
			coalesce(coalesce(base.typtype, t.typtype) = 'e', false),
			coalesce(coalesce(base.typname, t.typname) = 'citext', false)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_type base ON t.typtype = 'd' AND base.oid = t.typbasetype
		WHERE n.nspname = $1 AND c.relname = $2
		ORDER BY a.attnum`, t.d.opts.Schema, name)
	if err != nil {
		return relation{}, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	return r, nil
}

// identify sets what the engine sees. Without kinetl's comment, or with one that does
// not fit the type, somebody else made the column: it is a cap.
func (c *column) identify(comment string) {
	c.Name = c.name
	if c.generated {
		c.Class, c.Cap, c.Native = kinetl.Text, true, generatedNative
		return
	}
	if text, ours := strings.CutPrefix(comment, classComment); ours {
		name, key, hasKey := strings.Cut(text, keyComment)
		if class, ok := kinetl.ParseClass(name); ok && typeOf(class) == c.typ {
			c.Class = class
			if hasKey {
				c.Name = key
			}
			return
		}
	}
	c.Cap = true
	switch c.oid {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		c.Class = kinetl.Int64
	case pgtype.NumericOID:
		c.Class = kinetl.Number
		if c.typ == typeOf(kinetl.Decimal) {
			c.Class = kinetl.Decimal
		}
	case pgtype.Float4OID, pgtype.Float8OID:
		c.Class = kinetl.Double
	case pgtype.JSONOID, pgtype.JSONBOID:
		c.Class = kinetl.JSON
	case pgtype.BoolOID:
		c.Class = kinetl.Bool
	default:
		c.Class = kinetl.Text
	}
	if typeOf(c.Class) != c.typ {
		c.Native = c.typ
	}
}

// comment is what identify reads: the class, and the key where the name is not it.
func (c column) comment() string {
	text := classComment + c.Class.String()
	if c.name != c.Name {
		text += keyComment + c.Name
	}
	return text
}

// schemaOf is the columns as the engine sees them.
func schemaOf(columns []column) kinetl.Schema {
	var out kinetl.Schema
	for _, c := range columns {
		out = append(out, c.Column)
	}
	return out
}

// typeOf is the type of a column that kinetl makes, as PostgreSQL prints it.
func typeOf(c kinetl.Class) string {
	switch c {
	case kinetl.Empty, kinetl.JSON, kinetl.Metadata:
		return "jsonb"
	case kinetl.Bool:
		return "boolean"
	case kinetl.Int53, kinetl.Int64:
		return "bigint"
	case kinetl.Decimal:
		return "numeric(38,0)"
	case kinetl.Double:
		return "double precision"
	case kinetl.Timestamp:
		return "timestamp with time zone"
	}
	return "text" // Number, String, Text
}
