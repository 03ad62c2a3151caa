package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"pgregory.net/rapid"
)

// cells is the row that a payload decodes to: a value's class and text. It decodes
// twice, since the quick way is for keys that were there before.
func cells(payload []byte) (map[string]cell, error) {
	b := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone)
	decoder := codec.NewJSON()
	var errs [2]error
	for i := range errs {
		if errs[i] = decoder.Decode(payload, b); errs[i] != nil {
			b.AbortRow()
		} else if err := b.EndRow(&kinetl.Record{Sequence: "1"}, kinetl.ShardID{}); err != nil {
			return nil, err
		}
	}
	if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
		return nil, fmt.Errorf("first %v, then %v", errs[0], errs[1])
	}
	if errs[0] != nil {
		return nil, errs[0]
	}
	rows, schema, _ := b.Seal()
	out := map[string]cell{}
	for i, c := range schema {
		text := textOf(rows.Column(i), 0)
		if again := textOf(rows.Column(i), 1); again != text {
			return nil, fmt.Errorf("first %s, then %s", text, again)
		}
		out[c.Name] = cell{c.Class, text}
	}
	return out, nil
}

func textOf(values arrow.Array, row int) string {
	if f, ok := values.(*array.Float64); ok {
		return kinetl.FormatDouble(f.Value(row)) // tells 0 from -0
	}
	return values.ValueStr(row)
}

type cell struct {
	class kinetl.Class
	text  string
}

func TestValuesOfEveryClass(t *testing.T) {
	got, err := cells([]byte(" {\"s\" : \"a\\u00e4\\ud83d\\ude00\\n\\/\" ,\t\"n\":null,\"t\":true,\"f\":false,\r\n\"i\":-7,\"d\":2.50,\"o\":{\"a\" :[1.0,\"\\u0061\"]},\"l\":[ 1 ],\"e\":{ \n},\"x\":[]} \n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cell{
		"s": {kinetl.String, "a\u00e4\U0001F600\n/"}, "t": {kinetl.Bool, "true"}, "f": {kinetl.Bool, "false"},
		"i": {kinetl.Int53, "-7"}, "d": {kinetl.Double, "2.5"}, "o": {kinetl.JSON, `{"a" :[1.0,"\u0061"]}`},
		"l": {kinetl.JSON, "[ 1 ]"}, "e": {kinetl.Empty, "{}"}, "x": {kinetl.Empty, "[]"},
	}
	for name, c := range want {
		if got[name] != c {
			t.Errorf("%s is %v, want %v", name, got[name], c)
		}
	}
	if len(got) != len(want) {
		t.Errorf("cells %v", got)
	}
}

// A dead letter says where its payload is wrong, and why.
func TestReasons(t *testing.T) {
	for payload, reason := range map[string]string{
		"":                               "empty payload",
		" ":                              "invalid JSON at byte 1: the text ends where a value should be",
		"\xef\xbb\xbf{}":                 `invalid JSON at byte 0: '\ufeff' where a value should be`,
		"\x1f\x8b\x08":                   "invalid JSON at byte 0: byte 0x1f where a value should be",
		"{":                              "invalid JSON at byte 1: the text ends where a key should be",
		`{a:1}`:                          "invalid JSON at byte 1: 'a' where a key should be",
		`{"a" 1}`:                        "invalid JSON at byte 5: '1' where ':' should be",
		`{"a":}`:                         "invalid JSON at byte 5: '}' where a value should be",
		`{"a":1,}`:                       "invalid JSON at byte 7: '}' where a key should be",
		`{"a":1 "b":2}`:                  `invalid JSON at byte 7: '"' where ',' or '}' should be`,
		`{"a":[1,]}`:                     "invalid JSON at byte 8: ']' where a value should be",
		`{"a":[1 2]}`:                    "invalid JSON at byte 8: '2' where ',' or ']' should be",
		`{"a":{"b":1]}`:                  "invalid JSON at byte 11: ']' where ',' or '}' should be",
		`{} {}`:                          "invalid JSON at byte 3: '{' where the end of the text should be",
		"{}\x00":                         "invalid JSON at byte 2: byte 0x00 where the end of the text should be",
		`01`:                             "invalid JSON at byte 1: '1' where the end of the text should be",
		`-`:                              "invalid JSON at byte 1: the text ends where a digit should be",
		`{"a":1.}`:                       "invalid JSON at byte 7: '}' where a digit should be",
		`{"a":1e+}`:                      "invalid JSON at byte 8: '}' where a digit should be",
		`{"a":.5}`:                       "invalid JSON at byte 5: '.' where a value should be",
		`{"a":NaN}`:                      "invalid JSON at byte 5: 'N' where a value should be",
		`{"a":nul}`:                      "invalid JSON at byte 8: '}' where null should be",
		`{"a":"b`:                        "invalid JSON at byte 5: this string does not end",
		`{"a":"\`:                        "invalid JSON at byte 7: the text ends where the rest of an escape should be",
		"{\"a\":\"\n\"}":                 "invalid JSON at byte 6: control character 0x0a in a string",
		"{\"a\":\"x\xff\"}":              "invalid JSON at byte 7: byte 0xff is not UTF-8",
		"{\"a\":[\"\xc0\x80\"]}":         "invalid JSON at byte 7: byte 0xc0 is not UTF-8",
		"{\"\xed\xa0\x80\":1}":           "invalid JSON at byte 2: byte 0xed is not UTF-8",
		`{"a":"\x41"}`:                   "invalid JSON at byte 7: 'x' where the rest of an escape should be",
		`{"a":"\u00g0"}`:                 "invalid JSON at byte 10: 'g' where a hex digit should be",
		`{"a":"\ud83d"}`:                 `invalid JSON at byte 6: \ud83d is half of a surrogate pair, the other half is missing`,
		`{"a":"\ude00\ud83d"}`:           `invalid JSON at byte 6: \ude00 is half of a surrogate pair, the other half is missing`,
		`{"a":["\uD83Dx"]}`:              `invalid JSON at byte 7: \uD83D is half of a surrogate pair, the other half is missing`,
		`{"a":1e1000000000000000000}`:    "invalid JSON at byte 5: a number with an exponent of more than 18 digits",
		strings.Repeat("[", 2000):        "invalid JSON at byte 1000: nested deeper than 1000 levels",
		`{"a":` + strings.Repeat("[", 9): "invalid JSON at byte 14: the text ends where a value should be",
		`{"a\u0000":1}`:                  `key "a\u0000" contains a NUL character, which no column name can`,
	} {
		got, err := cells([]byte(payload))
		if err == nil {
			t.Errorf("%.40q is accepted: %v", payload, got)
		} else if err.Error() != reason {
			t.Errorf("%.40q: %s, want %s", payload, err, reason)
		}
	}
}

// Hostile nesting ends with an error, whatever its size, and what is allowed decodes.
func TestDepth(t *testing.T) {
	deep := func(n int) []byte {
		return []byte(`{"a":` + strings.Repeat(`[{"b":`, n) + "1" + strings.Repeat("}]", n) + "}")
	}
	if _, err := cells(deep(499)); err != nil {
		t.Errorf("999 levels: %v", err)
	}
	for _, n := range []int{500, 2_000_000} {
		if _, err := cells(deep(n)); err == nil || !strings.Contains(err.Error(), "nested deeper than 1000 levels") {
			t.Errorf("%d levels: %v", 2*n+1, err)
		}
	}
}

// A number's digits are not expanded: a few bytes must not become gigabytes.
func TestHugeExponents(t *testing.T) {
	got, err := cells([]byte(`{"a":1e999999999,"b":-1.50e-999999999,"c":[1e99999999999999999999999]}`))
	if err != nil || got["a"].text != "1e+999999999" || got["b"].text != "-1.5e-999999999" {
		t.Errorf("%v: %v", got, err)
	}
}

// The decoder keeps nothing of a payload that its fetch overwrites later.
func TestPayloadsAreCopied(t *testing.T) {
	b := kinetl.NewBuilder(nil, kinetl.Refuse, kinetl.MetadataNone)
	decoder, page := codec.NewJSON(), make([]byte, 64)
	for _, payload := range []string{`{"key":"one","o":[1]}`, `{"key":"two","o":[2]}`, `{"key":"\u0033","o":[3]}`} {
		copy(page, strings.Repeat(" ", len(page)))
		copy(page, payload)
		if err := decoder.Decode(page, b); err != nil {
			t.Fatal(err)
		}
		if err := b.EndRow(&kinetl.Record{Sequence: "1"}, kinetl.ShardID{}); err != nil {
			t.Fatal(err)
		}
	}
	clear(page)
	rows, schema, _ := b.Seal()
	if got := rows.Column(0).String() + rows.Column(1).String(); got != `["one" "two" "3"]["[1]" "[2]" "[3]"]` || schema[0].Name != "key" {
		t.Errorf("rows %s of %v", got, schema)
	}
}

// refusals are the texts that JSON allows and kinetl does not.
var refusals = []string{"half of a surrogate pair", "nested deeper", "exponent of more than 18 digits", "duplicate key", "NUL character"}

// compare holds the decoder against encoding/json.
func compare(t interface{ Fatalf(string, ...any) }, payload []byte) {
	got, err := cells(payload)
	valid := json.Valid(payload) && utf8.Valid(payload)
	if err != nil {
		named := false
		for _, r := range refusals {
			named = named || strings.Contains(err.Error(), r)
		}
		if valid && !named {
			t.Fatalf("%q is refused: %v", payload, err)
		}
		return
	}
	if !valid {
		t.Fatalf("%q is accepted", payload)
	}
	var fields map[string]json.RawMessage
	if bytes.TrimLeft(payload, " \t\r\n")[0] != '{' {
		compareSingle(t, payload, got)
		return
	}
	if err := json.Unmarshal(payload, &fields); err != nil {
		t.Fatalf("%q: %v", payload, err)
	}
	n := 0
	for key, raw := range fields {
		if string(raw) == "null" {
			continue
		}
		n++
		compareValue(t, raw, got[columnOf(key)])
	}
	if n != len(got) {
		t.Fatalf("%q has %d values, decoded %v", payload, n, got)
	}
}

func columnOf(key string) string {
	if key == "" {
		return "_"
	}
	for _, mode := range []kinetl.MetadataMode{kinetl.MetadataColumnsStream, kinetl.MetadataObject} {
		if kinetl.MetadataSchema(mode).Index(key) >= 0 {
			return key + "_"
		}
	}
	return key
}

func compareSingle(t interface{ Fatalf(string, ...any) }, payload []byte, got map[string]cell) {
	var want, have any
	c := got["value"]
	if c.class != kinetl.JSON || len(got) != 1 {
		t.Fatalf("%q decodes to %v", payload, got)
	}
	if err := unmarshal(payload, &want); err != nil {
		t.Fatalf("%q: %v", payload, err)
	}
	if err := unmarshal([]byte(c.text), &have); err != nil {
		t.Fatalf("%q became %s: %v", payload, c.text, err)
	}
	w, isNumber := want.(json.Number)
	if h, ok := have.(json.Number); isNumber && ok {
		if !equal(string(w), string(h)) {
			t.Fatalf("%q became %s", payload, c.text)
		}
		return
	}
	a, _ := json.Marshal(want)
	if b, _ := json.Marshal(have); !bytes.Equal(a, b) {
		t.Fatalf("%q became %s", payload, c.text)
	}
}

func compareValue(t interface{ Fatalf(string, ...any) }, raw json.RawMessage, got cell) {
	var v any
	if err := unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	ok := false
	switch v := v.(type) {
	case string:
		ok = got == cell{kinetl.String, v}
	case bool:
		ok = got == cell{kinetl.Bool, strconv.FormatBool(v)}
	case json.Number:
		ok = got.class.Kind() == kinetl.KindNumber && equal(string(v), got.text)
	case []any:
		ok = got == cell{kinetl.JSON, string(raw)} || len(v) == 0 && got == cell{kinetl.Empty, "[]"}
	case map[string]any:
		ok = got == cell{kinetl.JSON, string(raw)} || len(v) == 0 && got == cell{kinetl.Empty, "{}"}
	}
	if !ok {
		t.Fatalf("%s decodes to %v", raw, got)
	}
}

func unmarshal(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// equal compares numbers, where math/big can without writing out all zeros.
func equal(a, b string) bool {
	for _, s := range []string{a, b} {
		_, exponent, _ := strings.Cut(strings.ToLower(s), "e")
		if e, _ := strconv.Atoi(exponent); len(exponent) > 5 || e > 5000 || e < -5000 {
			return true
		}
	}
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}

// anyJSON draws JSON texts, now and then with one byte changed.
func anyJSON() *rapid.Generator[string] {
	var value func(t *rapid.T, depth int) string
	value = func(t *rapid.T, depth int) string {
		kinds := 4
		if depth > 0 {
			kinds = 6
		}
		switch kind := rapid.IntRange(0, kinds-1).Draw(t, "kind"); kind {
		case 0:
			return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")
		case 1:
			return rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
		case 2, 3:
			return text(t)
		default:
			open, end := "[", "]"
			if kind == 5 {
				open, end = "{", "}"
			}
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				v := space(t) + value(t, depth-1) + space(t)
				if kind == 5 {
					v = space(t) + text(t) + space(t) + ":" + v
				}
				parts = append(parts, v)
			}
			return open + strings.Join(parts, ",") + space(t) + end
		}
	}
	return rapid.Custom(func(t *rapid.T) string {
		s := space(t) + value(t, 3) + space(t)
		if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
			i := rapid.IntRange(0, len(s)-1).Draw(t, "at")
			s = s[:i] + string(rapid.SampledFrom([]byte("\"\\,:{}[]0eE.-+u \x00\x80\xffnt")).Draw(t, "byte")) + s[i+1:]
		}
		return s
	})
}

func space(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\t\r\n"}).Draw(t, "space")
}

func text(t *rapid.T) string {
	if rapid.Bool().Draw(t, "escaped") {
		return `"` + rapid.StringMatching(`([a-z\x{e4}\x{1F600}]|\\["\\/bfnrt]|\\u00[0-7][0-9a-fA-F]|\\ud83[d-f]\\ude0[0-9]){0,5}`).Draw(t, "text") + `"`
	}
	quoted, _ := json.Marshal(rapid.StringN(0, 5, -1).Draw(t, "text"))
	return string(quoted)
}

func TestAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { compare(t, []byte(anyJSON().Draw(t, "payload"))) })
}

// FuzzJSON: what the decoder accepts is JSON in UTF-8 and keeps its values; what it
// refuses is not, but for the refusals that it names.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		"", "null", ` {"a":1,"b":[true,{"c":null}],"":"\u00e4\ud83d\ude00"} `, `{"a":1e400,"b":-0.0,"c":1.50}`,
		`{"a":1,"A":2}`, `{"_openetl_id":1}`, `"FT109918"`, `[1,2`, `{"a":"\ud83d"}`, "{\"a\":\"\xff\"}", `{"a":{ },"b":[ ]}`,
		`{"a":123456789012345678901234567890123456789}`, `{"value":1}`, "\xef\xbb\xbf{}", strings.Repeat("[", 1001),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) { compare(t, payload) })
}
