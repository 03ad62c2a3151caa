// Package codec turns payloads into rows.
package codec

import (
	"errors"

	"github.com/kinetl/kinetl"
)

// NewJSON decodes payloads that are one JSON text each.
//
// The first-level fields of an object are columns; any other value goes as JSON text
// to the column "value". Strings and numbers keep their exact value, nested values
// their text as it came; null makes no cell. Refused, with the reason and the place
// in the error: an empty payload, anything but one JSON text in UTF-8, escapes of
// half a surrogate pair, nesting deeper than 1000 levels, a number with an exponent
// of more than 18 digits, and whatever Builder.Set refuses.
func NewJSON() kinetl.Decoder { return &jsonDecoder{} }

// jsonDecoder goes over a payload once. Fields of the usual kind, which are those
// whose key was seen before and whose value fits its column, go to the column's
// buffer by the quick way (quickFields); any other goes field by field the exact
// way (field), which alone knows about errors.
type jsonDecoder struct {
	scanner
	plan            plan
	keyBuf, textBuf []byte
}

var errEmptyPayload = errors.New("empty payload")

func (d *jsonDecoder) Decode(payload []byte, row *kinetl.Builder) error {
	if len(payload) == 0 {
		return errEmptyPayload
	}
	d.scanner = scanner{data: payload}
	err := d.decode(row)
	d.data = nil // the payload belongs to its fetch
	return err
}

func (d *jsonDecoder) decode(row *kinetl.Builder) error {
	d.space()
	var err error
	if d.peek() == '{' {
		err = d.object(row)
	} else {
		err = d.single(row)
	}
	if err != nil {
		return err
	}
	d.space()
	if d.at < len(d.data) {
		return d.unexpected("the end of the text")
	}
	return nil
}

// object sets a cell for each field.
func (d *jsonDecoder) object(row *kinetl.Builder) error {
	d.at++
	d.space()
	if d.peek() == '}' {
		d.at++
		return nil
	}
	d.plan.begin(row)
	for {
		if end, err := d.quickFields(row); end || err != nil {
			return err
		}
		if err := d.field(row); err != nil {
			return err
		}
		if end, err := d.separator(); end || err != nil {
			return err
		}
	}
}

// separator steps over what follows a field: a comma, or the end of the object.
func (d *jsonDecoder) separator() (end bool, err error) {
	d.space()
	switch d.peek() {
	case ',':
		d.at++
		d.space()
		return false, nil
	case '}':
		d.at++
		return true, nil
	}
	return false, d.unexpected("',' or '}'")
}

// quickFields sets fields up to the end of the object, or to one that takes field.
func (d *jsonDecoder) quickFields(row *kinetl.Builder) (end bool, err error) {
	data, i := d.data, d.at
	for {
		d.at = i
		s := d.plan.match(data[i:])
		if s == nil {
			return false, nil
		}
		if i += len(s.key); i < len(data) && data[i] <= ' ' {
			i = skipSpace(data, i)
		}
		if i = d.quickValue(row, s.col, i); i < 0 {
			return false, nil
		}
		if i+1 < len(data) && data[i] == ',' && data[i+1] == '"' {
			i++
			continue
		}
		d.at = i
		if end, err := d.separator(); end || err != nil {
			return end, err
		}
		i = d.at
	}
}

// quickValue sets a column to the value at i and returns the place behind it, or -1.
func (d *jsonDecoder) quickValue(row *kinetl.Builder, col, i int) int {
	data, end, set := d.data, -1, false
	if i >= len(data) {
		return -1
	}
	switch c := data[i]; c {
	case '"':
		to, escaped := skipString(data, i+1)
		if to < 0 {
			return -1
		}
		text := data[i+1 : to]
		if escaped {
			d.textBuf = unescape(d.textBuf[:0], text)
			text = d.textBuf
		}
		end, set = to+1, row.Text(col, text)
	case '{', '[':
		if end = skipNested(data, i, 1); end < 0 {
			return -1
		}
		text := data[i:end]
		if _, empty := emptyText(text); !empty {
			set = row.JSON(col, text)
		}
	case 't':
		end = skipWord(data, i, "true")
		set = end > 0 && row.Bool(col, true)
	case 'f':
		end = skipWord(data, i, "false")
		set = end > 0 && row.Bool(col, false)
	case 'n':
		end = skipWord(data, i, "null")
		set = end > 0 && row.Null(col)
	default:
		var n shortNumber
		if n, end = readShort(data, i); end < 0 {
			return -1
		}
		if n.scale == 0 {
			set = row.Int(col, n.integer())
		} else if f, ok := n.double(data[i:end]); ok {
			set = row.Double(col, f)
		}
	}
	if !set {
		return -1
	}
	return end
}

// field sets one field, whatever it is, or says why it can't.
func (d *jsonDecoder) field(row *kinetl.Builder) error {
	if d.peek() != '"' {
		return d.unexpected("a key")
	}
	from := d.at
	key, err := d.text(&d.keyBuf)
	if err != nil {
		return err
	}
	plain := d.at-from == len(key)+2
	if err := d.eat(':', "':'"); err != nil {
		return err
	}
	class, text, err := d.cell(1)
	if err != nil {
		return err
	}
	if err := row.Set(key, class, text); err != nil {
		return err
	}
	if plain {
		d.plan.learn(key)
	}
	return nil
}

// single sets the column "value" to a payload that is no object.
func (d *jsonDecoder) single(row *kinetl.Builder) error {
	class, text, err := d.cell(0)
	switch {
	case err != nil:
		return err
	case class == kinetl.Unset:
		text = []byte("null")
	case class == kinetl.String:
		text = kinetl.QuoteJSON(nil, text)
	}
	return row.Set([]byte("value"), kinetl.JSON, text)
}

// cell steps over a value, depth levels below the top, and returns what Builder.Set
// takes.
func (d *jsonDecoder) cell(depth int) (kinetl.Class, []byte, error) {
	from := d.at
	switch c := d.peek(); {
	case c == '"':
		text, err := d.text(&d.textBuf)
		return kinetl.String, text, err
	case c == '-', isDigit(c):
		literal, err := d.number()
		if err != nil {
			return 0, nil, err
		}
		class, text := kinetl.ClassifyNumber(literal)
		if class == kinetl.Unset {
			d.at = from
			return 0, nil, d.fail("a number with an exponent of more than 18 digits")
		}
		return class, text, nil
	case c == '{', c == '[':
		err := d.nested(depth)
		text := d.data[from:d.at]
		if err != nil {
			return 0, nil, err
		}
		if empty, ok := emptyText(text); ok {
			return kinetl.Empty, empty, nil
		}
		return kinetl.JSON, text, nil
	}
	err := d.value(depth)
	text := d.data[from:d.at]
	switch {
	case err != nil:
		return 0, nil, err
	case text[0] == 'n':
		return kinetl.Unset, nil, nil
	}
	return kinetl.Bool, text, nil
}

// emptyText is the canonical text of an object or array without content.
func emptyText(nested []byte) ([]byte, bool) {
	for _, c := range nested[1 : len(nested)-1] {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return nil, false
		}
	}
	if nested[0] == '{' {
		return []byte("{}"), true
	}
	return []byte("[]"), true
}
