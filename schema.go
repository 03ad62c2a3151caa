package kinetl

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Class is what a column can hold without changing a value. Classes form a
// lattice; a column's class is the join of its values' classes and never depends
// on the order in which they came (R28).
//
//	                JSON
//	   /      /       |        \
//	Bool  Number    String    (nested values)
//	  |   /    \      |
//	  | Decimal Double|
//	  |   |     |     |
//	  | Int64  /      |
//	  |   |   /       |
//	  | Int53         |
//	   \    \        /
//	        Empty
type Class uint8

const (
	// Unset is no class at all: a key that was only ever null makes no column.
	Unset Class = iota
	// Empty holds {} and [] only, as JSON text. They decide no type: beside a
	// scalar they become NULL, beside nested values they keep their text. Under
	// Allow a Builder gives them the class JSON instead.
	Empty
	Bool
	Int53   // integers with |v| <= 2^53, exact as a double too
	Int64   // integers of 64 bits
	Decimal // integers of up to 38 digits, decimal(38,0)
	Double  // numbers whose shortest decimal form as a double is the number itself
	Number  // any number, as exact canonical text
	String
	JSON // any value, as JSON text
	// Timestamp is an instant in UTC, microseconds. Metadata only.
	Timestamp
	// Metadata is the object of recordMetadata: object.
	Metadata
	// Text takes any value as text: a string as it is, a number canonically,
	// anything else as JSON text. Only columns that kinetl did not make have it.
	Text
)

var classNames = [...]string{"unset", "empty", "bool", "int53", "int64", "decimal", "double", "number", "string", "json", "timestamp", "metadata", "text"}

// String is the name under which a destination keeps a column's class.
func (c Class) String() string { return classNames[c] }

// ParseClass reads a name that String wrote.
func ParseClass(name string) (Class, bool) {
	for c, n := range classNames {
		if n == name && Class(c) != Unset {
			return Class(c), true
		}
	}
	return Unset, false
}

// Kind groups classes whose joins lose nothing that a reader of the column would
// miss: numbers widen among themselves under any policy, everything else is a
// change of kind (R29).
type Kind uint8

const (
	KindNone Kind = iota // Unset, Empty
	KindBool
	KindNumber
	KindString
	KindJSON
	KindText
	KindFixed // Timestamp, Metadata: never joined with anything else
)

// Kind is the kind of the class.
func (c Class) Kind() Kind {
	switch c {
	case Unset, Empty:
		return KindNone
	case Bool:
		return KindBool
	case Int53, Int64, Decimal, Double, Number:
		return KindNumber
	case String:
		return KindString
	case JSON:
		return KindJSON
	case Text:
		return KindText
	}
	return KindFixed
}

// Join is the smallest class that holds the values of both.
func (c Class) Join(d Class) Class {
	if c > d {
		c, d = d, c
	}
	switch {
	case c == d, c == Unset:
		return d
	case c.Kind() == KindFixed, d.Kind() == KindFixed, d == Text:
		return Text
	case c == Empty:
		return d
	case c.Kind() == KindNumber && d.Kind() == KindNumber:
		if d == Double && c != Int53 {
			return Number
		}
		return d
	}
	return JSON
}

// MetadataType is the Arrow type of the class Metadata: the fields of the seed
// connector's kinesisMetadata, arrival as ISO 8601 text in UTC.
var MetadataType = arrow.StructOf(
	arrow.Field{Name: "stream", Type: arrow.BinaryTypes.String},
	arrow.Field{Name: "shardId", Type: arrow.BinaryTypes.String},
	arrow.Field{Name: "approximateArrival", Type: arrow.BinaryTypes.String},
	arrow.Field{Name: "partitionKey", Type: arrow.BinaryTypes.String},
	arrow.Field{Name: "sequenceNumber", Type: arrow.BinaryTypes.String},
	arrow.Field{Name: "subSequenceNumber", Type: arrow.PrimitiveTypes.Int64},
	arrow.Field{Name: "shardedSequenceNumber", Type: arrow.BinaryTypes.String},
)

// Arrow is the physical type of the class's values in a batch.
func (c Class) Arrow() arrow.DataType {
	switch c {
	case Bool:
		return arrow.FixedWidthTypes.Boolean
	case Int53, Int64:
		return arrow.PrimitiveTypes.Int64
	case Decimal:
		return &arrow.Decimal128Type{Precision: 38, Scale: 0}
	case Double:
		return arrow.PrimitiveTypes.Float64
	case Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case Metadata:
		return MetadataType
	}
	return arrow.BinaryTypes.String
}

// TypeChanges is the policy for values whose kind is not the column's.
type TypeChanges uint8

const (
	Refuse TypeChanges = iota // such records become dead letters (default)
	Allow                     // the column becomes JSON
)

// Column is one column of a table as the engine sees it.
type Column struct {
	Name  string
	Class Class

	// Cap marks a column that can't be widened: somebody else made it, or the
	// engine refused the ALTER. What does not fit is a dead letter (R28).
	Cap bool
	// Native is a capped column's own type in the engine, when Class does not
	// determine it. The destination casts explicitly and refuses what it would change.
	Native string
	// Why tells a person why a capped column was not widened and what to do about it,
	// where the destination knows. It is no part of what the column is: Differs and
	// Join look past it.
	Why string
}

// typeName is the column's type for people.
func (c Column) typeName() string {
	if c.Native != "" {
		return c.Native
	}
	return c.Class.String()
}

// Schema is the columns of a table, in their order.
type Schema []Column

// Fold is the one function by which names match, for lookup, evolution and DDL:
// two names are the same column if they are equal but for the case of ASCII
// letters. Engines fold no more than that; folding less would ask an engine for a
// second column that it takes for the first (R12).
func Fold(name string) string {
	for i := range len(name) {
		if c := name[i]; 'A' <= c && c <= 'Z' {
			b := []byte(name)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return name
}

// Index is the place of the column that name matches, or -1.
func (s Schema) Index(name string) int {
	folded := Fold(name)
	for i := range s {
		if Fold(s[i].Name) == folded {
			return i
		}
	}
	return -1
}

// Join is the schema that holds the values of both, under a policy: the columns of
// s in their order, then those that only want has. A column whose kind would change
// under Refuse, or that is capped, stays as it is.
func (s Schema) Join(want Schema, changes TypeChanges) Schema {
	out := append(Schema(nil), s...)
	for _, w := range want {
		i := out.Index(w.Name)
		if i < 0 {
			out = append(out, w)
			continue
		}
		if class, ok := out[i].Widen(w.Class, changes); ok {
			out[i].Class = class
		}
	}
	return out
}

// Widen is the class that the column takes to hold values of class v as well, and
// whether the policy lets it.
func (c Column) Widen(v Class, changes TypeChanges) (Class, bool) {
	joined := c.Class.Join(v)
	switch {
	case joined == c.Class:
		return joined, true
	case c.Cap:
		return c.Class, false
	case c.Class.Kind() == KindNone, joined.Kind() == c.Class.Kind():
		return joined, true
	}
	return joined, changes == Allow && c.Class.Kind() != KindFixed
}

// changedTo says in words what became of the columns of s in now.
func (s Schema) changedTo(now Schema) string {
	var out []string
	for _, c := range now {
		switch i := s.Index(c.Name); {
		case i < 0:
			out = append(out, fmt.Sprintf("column %q is new, %s", c.Name, c.Class))
		case s[i].Class != c.Class:
			out = append(out, fmt.Sprintf("column %q is %s, was %s", c.Name, c.Class, s[i].Class))
		}
	}
	for _, c := range s {
		if now.Index(c.Name) < 0 {
			out = append(out, fmt.Sprintf("column %q is gone", c.Name))
		}
	}
	return strings.Join(out, "; ")
}

// Differs says in words how have differs from the columns of s, or nothing.
func (s Schema) Differs(have Schema) string {
	for _, c := range s {
		i := have.Index(c.Name)
		if i < 0 {
			return fmt.Sprintf("column %q is gone", c.Name)
		}
		if h := have[i]; h.Class != c.Class || h.Native != c.Native {
			return fmt.Sprintf("column %q is %s, was %s", c.Name, strings.TrimSpace(h.Class.String()+" "+h.Native), strings.TrimSpace(c.Class.String()+" "+c.Native))
		}
	}
	return ""
}
