package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/kinetl/kinetl"
)

// maxName is the most bytes of an identifier (NAMEDATALEN - 1). PostgreSQL cuts a
// longer one without a word, and two names that differ behind the cut then meet.
const maxName = 63

const deadLettersSuffix = "_dead_letters"

// isPlain reports whether SQL takes the name without quotes. PostgreSQL then folds
// its ASCII letters to lower case, and no others.
func isPlain(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c >= 0x80:
		case i > 0 && ('0' <= c && c <= '9' || c == '$'):
		default:
			return false
		}
	}
	return name != ""
}

// folded is the spelling under which somebody finds the name who writes it without
// quotes, where that is possible.
func folded(name string) string {
	if isPlain(name) {
		return kinetl.Fold(name)
	}
	return name
}

// fit cuts a name that is longer than n bytes and puts a hash of the whole behind it
// (R31). Spellings that differ in case only are one name and have one hash.
func fit(name string, n int) string {
	if len(name) <= n {
		return name
	}
	return hashed(name, n)
}

func hashed(name string, n int) string {
	sum := sha256.Sum256([]byte(kinetl.Fold(name)))
	end := "_" + hex.EncodeToString(sum[:4])
	n = min(n-len(end), len(name))
	for n > 0 && n < len(name) && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n] + end
}

// tableName is the table's name in the catalogue.
func tableName(table string) string { return fit(folded(table), maxName) }

// deadLetters is the name of the table's dead-letter table in the catalogue.
func deadLetters(table string) string {
	return fit(folded(table), maxName-len(deadLettersSuffix)) + deadLettersSuffix
}

// columnName is the name in the catalogue of a column that is made anew: not that of
// a column that every table has, nor one that is taken.
func columnName(name string, taken map[string]bool) string {
	out := fit(folded(name), maxName)
	switch out {
	case "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid":
		out = hashed(name, maxName)
	}
	for n := "1"; taken[out]; n += "1" {
		out = hashed(out+n, maxName)
	}
	taken[out] = true
	return out
}

// marker is the application_name of this application's sessions, by which they know
// one another. PostgreSQL keeps 63 bytes of printable ASCII of it.
func marker(application string) string {
	name := "kinetl/" + application
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			ascii := strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return '?'
				}
				return r
			}, name)
			return fit(ascii, maxName-9) + hashed(name, 9)
		}
	}
	return fit(name, maxName)
}

// lockKey is the advisory lock of what is named.
func lockKey(of ...string) int64 {
	sum := sha256.Sum256([]byte("kinetl\n" + strings.Join(of, "\n")))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// quote makes an identifier of any text that has no NUL.
func quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// literal makes a string constant of any text that has no NUL.
func literal(text string) string {
	quoted := `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
	if strings.Contains(text, `\`) { // whatever standard_conforming_strings says
		quoted = ` E` + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// table is the quoted name of a table, given its name in the catalogue.
func (d *Destination) table(name string) string {
	return quote(d.opts.Schema) + "." + quote(name)
}
