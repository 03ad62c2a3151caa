package postgres

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/kinetl/kinetl"
)

// kind is how the column's values are written.
func (c column) kind() kind {
	switch c.oid {
	case pgtype.BoolOID:
		return asBool
	case pgtype.Int8OID:
		return asInt8
	case pgtype.Int4OID:
		return asInt4
	case pgtype.Int2OID:
		return asInt2
	case pgtype.Float8OID:
		return asFloat8
	case pgtype.Float4OID:
		return asFloat4
	case pgtype.NumericOID:
		if c.Class == kinetl.Decimal {
			return asDecimal
		}
		return asNumber
	case pgtype.JSONBOID:
		if c.Class == kinetl.Metadata {
			return asObject
		}
		return asJSONB
	case pgtype.TimestamptzOID:
		if c.Class == kinetl.Timestamp {
			return asInstant
		}
		return asTimestamptz
	case pgtype.TimestampOID:
		return asTimestamp
	case pgtype.DateOID:
		return asDate
	case pgtype.TimeOID:
		return asTime
	case pgtype.UUIDOID:
		return asUUID
	case pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.JSONOID, pgtype.ByteaOID:
		return asText
	}
	if c.enum || c.citext {
		return asText
	}
	return asNothing
}

// misfits finds the rows of the stretch that only kinetl can tell to be wrong, before
// anything is sent: values that a column of somebody else's would round, cut or take
// for something else (R28), and characters that PostgreSQL has no room for.
func misfits(rows stretch, columns []column) ([]kinetl.RejectedRow, error) {
	have := schemaOf(columns)
	reasons := map[int]kinetl.RejectedRow{}
	for i, c := range rows.part.Schema {
		to := columns[have.Index(c.Name)]
		f, err := newField(rows.part.Rows.Column(i), to.kind())
		if to.generated {
			f, err = newField(rows.part.Rows.Column(i), asNothing)
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
		fits := f.test(to)
		if fits == nil {
			continue
		}
		for row := rows.from; row < rows.to; row++ {
			if _, seen := reasons[row]; seen || f.isNull(row) || fits(row) {
				continue
			}
			reasons[row] = f.refused(to, row)
		}
	}
	var out []kinetl.RejectedRow
	for row := rows.from; row < rows.to && len(reasons) > 0; row++ {
		if r, ok := reasons[row]; ok {
			r.Position = rows.part.RowIDs[row].Position()
			out = append(out, r)
		}
	}
	return out, nil
}

// test returns what tells whether the column takes the value of a row, or nil if there
// is none that it does not take.
func (f *field) test(c column) func(row int) bool {
	switch f.kind {
	case asNothing:
		return func(int) bool { return false }
	case asInt4:
		return func(row int) bool { return f.ints[row] == int64(int32(f.ints[row])) }
	case asInt2:
		return func(row int) bool { return f.ints[row] == int64(int16(f.ints[row])) }
	case asFloat4:
		return func(row int) bool {
			v := f.floats[row]
			return float64(float32(v)) == v || math.IsNaN(v)
		}
	case asNumber:
		return func(row int) bool {
			n, ok := parseNumber(&f.text, f.bytes(row))
			return ok && n.fits(c.typmod)
		}
	case asDate, asTime, asTimestamp, asTimestamptz:
		return func(row int) bool {
			m, ok := parseMoment(f.kind, f.bytes(row))
			return ok && m.fits(f.kind, c.typmod)
		}
	case asUUID:
		return func(row int) bool {
			_, ok := parseUUID(f.bytes(row))
			return ok
		}
	case asJSONB:
		if bytes.Contains(f.data, escapedNUL) {
			return func(row int) bool { return !holdsNUL(f.bytes(row)) }
		}
	case asText:
		return f.testText(c)
	}
	return nil
}

// testText: the server cuts blanks that are beyond the length of a varchar(n), without
// a word, and knows no NUL.
func (f *field) testText(c column) func(row int) bool {
	limit := math.MaxInt
	if c.typmod >= 4 && (c.oid == pgtype.VarcharOID || c.oid == pgtype.BPCharOID) {
		limit = int(c.typmod - 4)
	}
	hasNUL := bytes.IndexByte(f.data, 0) >= 0 && c.oid != pgtype.ByteaOID
	if limit == math.MaxInt && !hasNUL {
		return nil
	}
	return func(row int) bool {
		text := f.bytes(row)
		return bytes.IndexByte(text, 0) < 0 && (len(text) <= limit || utf8.RuneCount(text) <= limit)
	}
}

var escapedNUL = []byte(`\u0000`)

// holdsNUL reports whether JSON text has a string with a NUL. It can only be written as
// an escape, and not every such text is one: in \\u0000 the backslash is escaped.
func holdsNUL(text []byte) bool {
	for {
		at := bytes.Index(text, escapedNUL)
		if at < 0 {
			return false
		}
		before := at
		for before > 0 && text[before-1] == '\\' {
			before--
		}
		if (at-before)%2 == 0 {
			return true
		}
		text = text[at+len(escapedNUL):]
	}
}

// refused is the reason why the column does not take the value of the row.
func (f *field) refused(c column, row int) kinetl.RejectedRow {
	value := ""
	switch {
	case f.ints != nil:
		value = fmt.Sprint(f.ints[row])
	case f.floats != nil:
		value = kinetl.FormatDouble(f.floats[row])
	case f.offsets != nil:
		value = string(f.bytes(row))
	}
	if !c.Cap || f.kind == asJSONB || strings.ContainsRune(value, 0) {
		return kinetl.RejectedRow{Reason: fmt.Sprintf("column %q is %s, and PostgreSQL holds no NUL character (U+0000) in text", c.Name, c.typ)}
	}
	const most = 64
	if len(value) > most {
		value = strings.ToValidUTF8(value[:most], "") + "..."
	}
	return kinetl.RejectedRow{Reason: fmt.Sprintf("column %q is %s, which does not hold %s", c.Name, c.Native, value), Column: c.Name}
}
