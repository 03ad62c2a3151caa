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

type jsonDecoder struct {
	scanner
	keyBuf, textBuf []byte
}

var errEmptyPayload = errors.New("empty payload")

func (d *jsonDecoder) Decode(payload []byte, row *kinetl.Builder) error {
	if len(payload) == 0 {
		return errEmptyPayload
	}
	d.scanner = scanner{data: payload}
	defer func() { d.data = nil }() // the payload belongs to its fetch
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
	for {
		if d.peek() != '"' {
			return d.unexpected("a key")
		}
		key, err := d.text(&d.keyBuf)
		if err != nil {
			return err
		}
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
		d.space()
		switch d.peek() {
		case ',':
			d.at++
			d.space()
		case '}':
			d.at++
			return nil
		default:
			return d.unexpected("',' or '}'")
		}
	}
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
