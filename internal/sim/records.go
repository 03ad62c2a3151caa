package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kinetl/kinetl/dest/desttest"
)

// sent is every record that was put, by its id.
type sent struct {
	payloads []string
	perKey   map[string]int
}

func newSent() *sent { return &sent{perKey: map[string]int{}} }

// put writes n records to one of the streams, some of them aggregated, some undecodable.
func (w *world) put(n int) {
	stream := w.anyStream()
	for n > 0 {
		key := fmt.Sprintf("%s-%d", stream.name, w.rng.IntN(12))
		size := 1
		if w.rng.IntN(5) == 0 {
			size = 1 + w.rng.IntN(6)
		}
		var payloads [][]byte
		for range size {
			payloads = append(payloads, []byte(w.payload(key)))
		}
		stream.put(key, payloads...)
		n -= size
	}
}

// payload is a record that names itself, and has fields whose classes change.
func (w *world) payload(key string) string {
	id := len(w.sent.payloads)
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%d,"k":%q,"n":%d`, id, key, w.sent.perKey[key])
	for range w.rng.IntN(4) {
		field := w.rng.IntN(6)
		if !strings.Contains(b.String(), fmt.Sprintf(`"f%d"`, field)) {
			fmt.Fprintf(&b, `,"f%d":%s`, field, w.value(field))
		}
	}
	b.WriteString("}")
	text := b.String()
	if w.rng.IntN(40) == 0 {
		text = strings.TrimSuffix(text, "}") // undecodable
	}
	w.sent.payloads = append(w.sent.payloads, text)
	w.sent.perKey[key]++
	return text
}

// refuse is what the table has against a row.
func refuse(_ string, row desttest.Row) string {
	if id, err := strconv.Atoi(row.Cells["id"]); err == nil && isRefused(id) {
		return "refused by the table"
	}
	return ""
}

func isRefused(id int) bool { return id%97 == 13 }

// value is rarely of another class than the field's usual one.
func (w *world) value(field int) string {
	usual := []string{"7", "2.5", `"text"`, `{"a":1}`, "true", "12345678901234567890"}
	if w.rng.IntN(30) == 0 {
		values := []string{"9007199254740993", "0.1", `"other"`, "[]", "{}", "null", "[1]", "false", "1e40", "-1"}
		return values[w.rng.IntN(len(values))]
	}
	return usual[field]
}
