package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// scriptPatience is how long a script waits for a condition before it fails.
const scriptPatience = time.Minute

// nocalls OP... wants that the server was never asked for any of these actions.
func noCalls(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 1, "nocalls OP...")
	server := serverOf(ts)
	if len(server.Calls()) == 0 {
		ts.Fatalf("the server was not asked for anything: this proves nothing")
	}
	for _, op := range args {
		if n := server.Count(op); n > 0 {
			ts.Fatalf("the server was asked %d times for %s", n, op)
		}
	}
}

// awaitread N waits until readers have taken N records and then asked every shard
// again: by then the program holds what it was given.
func awaitRead(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 1, "awaitread N")
	server, n := serverOf(ts), count(ts, args[0])
	until(ts, "records are read, and shards asked again", func() bool { return readAll(server.Calls(), n) })
}

// readAll reports whether pages held n records in all, and the latest two of each
// shard none.
func readAll(calls []kinesistest.Call, n int) bool {
	empty := map[string]int{}
	for _, c := range calls {
		if c.Op != "GetRecords" || c.Code != "" {
			continue
		}
		n -= c.Records
		if empty[c.Shard]++; c.Records > 0 {
			empty[c.Shard] = 0
		}
	}
	for _, times := range empty {
		if times < 2 {
			return false
		}
	}
	return n <= 0 && len(empty) > 0
}

// awaitfile FILE TEXT waits until a file that a background program writes holds
// TEXT.
func awaitFile(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 2, "awaitfile FILE TEXT")
	until(ts, args[0]+" holds "+args[1], func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(text), args[1])
	})
}

func until(ts *testscript.TestScript, what string, done func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(scriptPatience)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("waited %s in vain until %s", scriptPatience, what)
		}
	}
}

// jsonlines FILE wants that a file has lines, each a JSON object with time, level
// and msg, such as slog writes.
func jsonLines(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 1, "jsonlines FILE")
	text := strings.TrimSuffix(ts.ReadFile(args[0]), "\n")
	for i, line := range strings.Split(text, "\n") {
		if err := checkLogLine(line); err != nil {
			ts.Fatalf("%s:%d: %v: %s", args[0], i+1, err, line)
		}
	}
}

// putn STREAM FROM TO puts records {"id":n}, each under a key of its own.
func putNumbered(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 3, "putn STREAM FROM TO")
	for n := count(ts, args[1]); n <= count(ts, args[2]); n++ {
		text := []byte(`{"id":` + strconv.Itoa(n) + `}`)
		_, _, err := serverOf(ts).Put(args[0], strconv.Itoa(n), text)
		ts.Check(err)
	}
}

func checkLogLine(line string) error {
	var entry struct {
		Time  time.Time
		Level string
		Msg   string
	}
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		return err
	}
	if entry.Time.IsZero() || entry.Level == "" || entry.Msg == "" {
		return fmt.Errorf("time, level or msg is missing")
	}
	return nil
}
