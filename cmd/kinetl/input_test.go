package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func all(in inputs) (out []input, err error) {
	for {
		r, err := in.next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
}

// FuzzLines: lines are what stands between LFs, and those beyond the limit are
// measured and not kept.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{"", "a", "a\n", "a\nb", "a\r\nb\r\n", "\n\n", "\r", strings.Repeat("x", 40) + "\n", strings.Repeat("x", 12) + "\r\ny", strings.Repeat("x", 13) + "\n"} {
		f.Add([]byte(seed))
	}
	const limit = 12
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := all(&lines{file: "f", in: bufio.NewReaderSize(bytes.NewReader(text), 16), limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Split(text, []byte("\n"))
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %d lines, want %d", text, len(got), len(want))
		}
		for i, line := range want {
			line = bytes.TrimSuffix(line, []byte("\r"))
			switch {
			case len(line) <= limit && !bytes.Equal(got[i].data, line):
				t.Errorf("%q: line %d is %q, want %q", text, i+1, got[i].data, line)
			case len(line) > limit && got[i].size <= limit:
				t.Errorf("%q: line %d has %d bytes, more than %d", text, i+1, got[i].size, limit)
			}
		}
	})
}

// FuzzElements: a text is taken if it is a JSON array, and its elements are those.
func FuzzElements(f *testing.F) {
	for _, seed := range []string{`[]`, `[1]`, `[ {"a": [1, 2]}, null ]`, `[1`, `[1,]`, `{}`, ``, `[1] 2`, `[1]]`, `[[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := all(&elements{file: "f", in: json.NewDecoder(bytes.NewReader(text))})
		var want []json.RawMessage
		wantErr := json.Unmarshal(text, &want)
		if wantErr == nil && want == nil {
			wantErr = errors.New("null is no array")
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", text, err, wantErr)
		}
		if err != nil {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %d elements, want %d", text, len(got), len(want))
		}
		for i, w := range want {
			var one bytes.Buffer
			if err := json.Compact(&one, w); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got[i].data, one.Bytes()) {
				t.Errorf("%q: element %d is %q, want %q", text, i+1, got[i].data, one.Bytes())
			}
		}
	})
}

func TestPartitionKey(t *testing.T) {
	for _, tt := range []struct {
		data, field, want string
		own               bool
	}{
		{`{"k":"a"}`, "k", "a", true},
		{`{"k":"\u00e9"}`, "k", "\u00e9", true},
		{`{"k":12345678901234567890}`, "k", "12345678901234567890", true},
		{`{"k":1.50}`, "k", "1.50", true},
		{`{"k":false}`, "k", "false", true},
		{`{"k":null}`, "k", "", false},
		{`{"k":""}`, "k", "", false},
		{`{"k":{"a":1}}`, "k", "", false},
		{`{"K":"a"}`, "k", "", false},
		{`[1]`, "k", "", false},
		{`not JSON`, "k", "", false},
		{`{"k":"a"}`, "", "", false},
	} {
		key, own, err := partitionKey([]byte(tt.data), tt.field)
		if err != nil || own != tt.own || own && key != tt.want {
			t.Errorf("%s by %q: %q, %t, %v; want %q, %t", tt.data, tt.field, key, own, err, tt.want, tt.own)
		}
		if again, _, _ := partitionKey([]byte(tt.data), tt.field); again != key {
			t.Errorf("%s by %q: %q, and then %q", tt.data, tt.field, key, again)
		}
	}
}

// FuzzPartitionKey: whatever the record, the service takes the key.
func FuzzPartitionKey(f *testing.F) {
	f.Add([]byte(`{"k":"a"}`), "k")
	f.Add([]byte(`{"k":"`+strings.Repeat("a", 257)+`"}`), "k")
	f.Add([]byte("{\"k\":\"\xff\"}"), "k")
	f.Fuzz(func(t *testing.T, data []byte, field string) {
		key, _, err := partitionKey(data, field)
		if n := utf8.RuneCountInString(key); err == nil && (n < 1 || n > maxKey || !utf8.ValidString(key)) {
			t.Errorf("%q by %q: key %q", data, field, key)
		}
	})
}
