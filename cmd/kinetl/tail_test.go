package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kinetl/kinetl"
)

// A tail shows records as they come, goes on in the children of a shard that ends,
// and ends with its context, which is exit code 0.
func TestTailFollowsAStream(t *testing.T) {
	server := startServer(t, "orders", 1)
	if _, _, err := server.Put("orders", "k", []byte("first")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var log bytes.Buffer
	done := make(chan int, 1)
	go func() {
		defer in.Close()
		done <- execute(ctx, []string{"tail", "orders", "--from", "1m", "--endpoint", server.URL()}, nil, in, &log)
	}()
	lines := bufio.NewScanner(out)
	wantLine := func(shard, data string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("it ended, want %s: %s", data, log.String())
		}
		if fields := strings.Split(lines.Text(), "\t"); len(fields) != 5 || fields[1] != shard || fields[4] != data {
			t.Errorf("printed %q, want %s in %s", lines.Text(), data, shard)
		}
	}
	wantLine("shardId-000000000000", "first")
	if _, _, err := server.Put("orders", "k", []byte("second")); err != nil {
		t.Fatal(err)
	}
	wantLine("shardId-000000000000", "second")
	if _, err := server.Split("orders", "shardId-000000000000"); err != nil {
		t.Fatal(err)
	}
	shard, _, err := server.Put("orders", "k", []byte("third"))
	if err != nil {
		t.Fatal(err)
	}
	wantLine(shard, "third")
	cancel()
	for lines.Scan() {
		t.Errorf("printed %q", lines.Text())
	}
	if code := <-done; code != exitDone {
		t.Errorf("exit code %d: %s", code, log.String())
	}
}

func TestParseFrom(t *testing.T) {
	now := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]kinetl.Position{
		"latest":                    fromLatest,
		"earliest":                  kinetl.Oldest,
		"5m":                        kinetl.Since(now.Add(-5 * time.Minute)),
		"0s":                        kinetl.Since(now),
		"2026-11-27T09:30:00+02:00": kinetl.Since(now.Add(-30 * time.Minute)),
	} {
		if got, err := parseFrom(text, now); err != nil || got != want {
			t.Errorf("--from %s is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-5m", "yesterday", "2026-11-27", "17", "2026-11-27T08:00:01Z"} {
		if got, err := parseFrom(text, now); err == nil {
			t.Errorf("--from %q is %q, want an error", text, got)
		}
	}
}

// FuzzRecordLine: a record is one line, of five fields or of one JSON object, from
// which nothing reaches the terminal but text; and --json loses no byte.
func FuzzRecordLine(f *testing.F) {
	for _, seed := range []string{"", "text", `{"a": 1}`, "{\"a\":\n1}", "a\tb", "\x1b[2J", "\u009b2J", "\"\u009b\"", "\xff", "<&>", "\u2028", `"\u0000"`} {
		f.Add([]byte(seed), seed)
	}
	shard := kinetl.ShardID{Stream: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", Shard: "shardId-000000000000"}
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		r := &kinetl.Record{Sequence: "17", PartitionKey: key, Data: data}
		var b bytes.Buffer
		if err := writeRecord(&b, shard, r, false); err != nil {
			t.Fatal(err)
		}
		line, found := strings.CutSuffix(b.String(), "\n")
		if !found || strings.Count(line, "\t") != 4 || !utf8.ValidString(line) || strings.ContainsFunc(strings.ReplaceAll(line, "\t", ""), unicode.IsControl) {
			t.Errorf("printed %q", b.String())
		}

		b.Reset()
		if err := writeRecord(&b, shard, r, true); err != nil {
			t.Fatal(err)
		}
		var got recordLine
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || strings.Count(b.String(), "\n") != 1 {
			t.Fatalf("printed %q: %v", b.String(), err)
		}
		var back []byte
		switch got.Encoding {
		case "json":
			var want bytes.Buffer
			if err := json.Compact(&want, data); err != nil {
				t.Fatal(err)
			}
			data, back = want.Bytes(), got.Data
		default:
			var text string
			if err := json.Unmarshal(got.Data, &text); err != nil {
				t.Fatal(err)
			}
			back = []byte(text)
			if got.Encoding == "base64" {
				var err error
				if back, err = base64.StdEncoding.DecodeString(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(back, data) {
			t.Errorf("%q came back as %q", data, back)
		}
	})
}
