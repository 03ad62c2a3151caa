package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kinetl/kinetl"
)

// recordLine is a record as tail --json prints it.
type recordLine struct {
	Arrived      string          `json:"arrived"`
	Shard        string          `json:"shard"`
	Sequence     string          `json:"sequence"`
	Sub          uint64          `json:"sub"`
	PartitionKey string          `json:"partition_key"`
	Encoding     string          `json:"encoding"` // of data: json, text or base64
	Data         json.RawMessage `json:"data"`
}

const arrivalLayout = "2006-01-02T15:04:05.000Z"

// writeRecord appends a record as one line.
func writeRecord(b *bytes.Buffer, shard kinetl.ShardID, r *kinetl.Record, asJSON bool) error {
	encoding := encodingOf(r.Data)
	if !asJSON {
		position := r.Position().String()
		fmt.Fprintf(b, "%s\t%s\t%s\t%s\t%s\n", r.Arrived.UTC().Format(arrivalLayout), shard.Shard, position, printable(r.PartitionKey), dataText(r.Data, encoding))
		return nil
	}
	line := recordLine{r.Arrived.UTC().Format(time.RFC3339Nano), shard.Shard, r.Sequence, r.Sub, r.PartitionKey, encoding, r.Data}
	if encoding != "json" {
		text := string(r.Data)
		if encoding == "base64" {
			text = base64.StdEncoding.EncodeToString(r.Data)
		}
		var err error
		if line.Data, err = json.Marshal(text); err != nil {
			return err
		}
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc.Encode(line)
}

func encodingOf(data []byte) string {
	switch {
	case !utf8.Valid(data):
		return "base64"
	case json.Valid(data):
		return "json"
	}
	return "text"
}

// dataText is a payload on one line, without anything that a terminal obeys.
func dataText(data []byte, encoding string) string {
	switch encoding {
	case "base64":
		return "base64:" + base64.StdEncoding.EncodeToString(data)
	case "json":
		var b bytes.Buffer
		if json.Compact(&b, data) == nil {
			return escapeControls(b.String())
		}
	}
	return printable(string(data))
}

// printable quotes text that would break the line or move the cursor.
func printable(text string) string {
	if strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// escapeControls writes control characters, which JSON allows in strings from U+007F
// on, as JSON escapes.
func escapeControls(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
