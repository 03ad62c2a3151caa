package kinetl

import "fmt"

// refuse says why the column can't take the value.
func (c Column) refuse(key []byte, class Class, text []byte, changes TypeChanges) error {
	if c.Cap {
		value := string(shorten(text, 40))
		if class == String {
			value = string(quoted(text))
		}
		why := "which kinetl did not make"
		if c.Why != "" {
			why = "which was not widened"
		}
		return &CappedError{c, fmt.Sprintf("field %s: %s does not fit column %s %s, %s", quoted(key), value, quoted([]byte(c.Name)), c.typeName(), why)}
	}
	why := ""
	if changes == Refuse {
		why = " (typeChanges: refuse)"
	}
	return fmt.Errorf("field %s: %s where the column is %s%s", quoted(key), kindNames[class.Kind()].value, kindNames[c.Class.Kind()].column, why)
}

var kindNames = map[Kind]struct{ value, column string }{
	KindNone:   {"an empty object or array", "empty"},
	KindBool:   {"boolean", "a boolean"},
	KindNumber: {"number", "a number"},
	KindString: {"string", "a string"},
	KindJSON:   {"object or array", "JSON"},
	KindText:   {"text", "text"},
	KindFixed:  {"metadata", "metadata"},
}

// quoted is text for an error: JSON-quoted and not long.
func quoted(text []byte) []byte { return QuoteJSON(nil, shorten(text, 80)) }

func shorten(text []byte, n int) []byte {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xc0 == 0x80 { // not inside a character
		n--
	}
	return append(text[:n:n], "..."...)
}
