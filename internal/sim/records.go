package sim

import (
	"fmt"
	"strings"
)

// sent is every record that was put, by its id.
type sent struct {
	payloads []string
	keys     []string
	perKey   map[string]int
}

func newSent() *sent { return &sent{perKey: map[string]int{}} }

// put writes n records to the stream, some of them aggregated, some undecodable.
func (w *world) put(n int) {
	for n > 0 {
		key := fmt.Sprintf("key-%d", w.rng.IntN(12))
		size := 1
		if w.rng.IntN(5) == 0 {
			size = 1 + w.rng.IntN(6)
		}
		var payloads [][]byte
		for range size {
			payloads = append(payloads, []byte(w.payload(key)))
		}
		w.stream.put(key, payloads...)
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
	w.sent.keys = append(w.sent.keys, key)
	w.sent.perKey[key]++
	return text
}

// value is rarely of another class than the field's usual one.
func (w *world) value(field int) string {
	usual := []string{"7", "2.5", `"text"`, `{"a":1}`, "true", "12345678901234567890"}
	if w.rng.IntN(30) == 0 {
		values := []string{"9007199254740993", "0.1", `"other"`, "[]", "{}", "null", "[1]", "false", "1e40", "-1"}
		return values[w.rng.IntN(len(values))]
	}
	return usual[field]
}
