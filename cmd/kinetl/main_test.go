package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// TestMain makes this binary be kinetl when a script calls it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kinetl": main})
}

// TestScripts runs testdata/script/*.txtar, one per behaviour of the program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Values[surroundingsKey{}] = &surroundings{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kinesis":   startKinesis,
			"emulator":  startEmulator,
			"partial":   partialPuts,
			"split":     splitShard,
			"merge":     mergeShards,
			"putrecord": putRecord,
			"putpacked": putPacked,
			"dump":      dump,
			"exits":     exits,
			"nocalls":   noCalls,
			"awaitread": awaitRead,
			"awaitfile": awaitFile,
			"jsonlines": jsonLines,
			"putn":      putNumbered,
			"sql":       runSQL,
		},
	})
}

type surroundingsKey struct{}

// surroundings are what a script has started.
type surroundings struct{ server *kinesistest.Server }

func serverOf(ts *testscript.TestScript) *kinesistest.Server {
	s := ts.Value(surroundingsKey{}).(*surroundings)
	if s.server == nil {
		ts.Fatalf("start a server before, with: kinesis STREAM:SHARDS")
	}
	return s.server
}

func wants(ts *testscript.TestScript, neg bool, args []string, n int, usage string) {
	if neg || len(args) < n {
		ts.Fatalf("usage: %s", usage)
	}
}

func count(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// kinesis [NAME:SHARDS ...] starts a Kinesis server for the rest of the script and
// sets $ENDPOINT to its URL.
func startKinesis(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 0, "kinesis [NAME:SHARDS ...]")
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	ts.Check(err)
	ts.Defer(func() { server.Close() })
	for _, arg := range args {
		name, shards, err := parseStream(arg)
		ts.Check(err)
		ts.Check(server.CreateStream(name, shards))
	}
	ts.Value(surroundingsKey{}).(*surroundings).server = server
	ts.Setenv("ENDPOINT", server.URL())
}

// emulator ARGS... runs kinetl emulator in this process until the script ends, which
// it must do with exit code 0. What it prints is written to the file emulator.out,
// and $ENDPOINT is the server that it names.
func startEmulator(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 0, "emulator ARGS...")
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var stderr strings.Builder
	done := make(chan int, 1)
	go func() {
		code := execute(ctx, append([]string{"emulator", "--addr", "127.0.0.1:0"}, args...), nil, in, &stderr)
		in.Close()
		done <- code
	}()
	ts.Defer(func() {
		cancel()
		if code := <-done; code != exitDone {
			panic(fmt.Sprintf("the emulator ended with exit code %d: %s", code, stderr.String()))
		}
	})
	var text strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if url, ok := strings.CutPrefix(lines.Text(), "export AWS_ENDPOINT_URL_KINESIS="); ok {
			ts.Setenv("ENDPOINT", url)
		}
		if strings.HasPrefix(lines.Text(), "export AWS_REGION=") { // the last
			break
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("emulator.out"), []byte(text.String()), 0o644))
	if ts.Getenv("ENDPOINT") == "" {
		ts.Fatalf("the emulator names no endpoint: %s", text.String())
	}
}

// partial N TIMES makes the next PutRecords calls refuse their first N records.
func partialPuts(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 2, "partial N TIMES")
	serverOf(ts).Fault(kinesistest.Fault{Op: "PutRecords", Times: count(ts, args[1]), Do: kinesistest.PartialPut(count(ts, args[0]))})
}

// split STREAM SHARD
func splitShard(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 2, "split STREAM SHARD")
	_, err := serverOf(ts).Split(args[0], args[1])
	ts.Check(err)
}

// merge STREAM SHARD ADJACENT
func mergeShards(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 3, "merge STREAM SHARD ADJACENT")
	_, err := serverOf(ts).Merge(args[0], args[1], args[2])
	ts.Check(err)
}

// putrecord STREAM KEY FILE
func putRecord(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 3, "putrecord STREAM KEY FILE")
	data := strings.TrimSuffix(ts.ReadFile(args[2]), "\n")
	_, _, err := serverOf(ts).Put(args[0], args[1], []byte(data))
	ts.Check(err)
}

// putpacked STREAM KEY TEXT... puts one aggregated record.
func putPacked(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 3, "putpacked STREAM KEY TEXT...")
	var packed []kinesis.AggregateRecord
	for _, text := range args[2:] {
		packed = append(packed, kinesis.AggregateRecord{PartitionKey: args[1], Data: []byte(text)})
	}
	_, _, err := serverOf(ts).Put(args[0], args[1], kinesis.Aggregate(packed))
	ts.Check(err)
}

// dump STREAM FILE writes a stream's records to a file, as KEY and DATA on a line, one
// shard after the other.
func dump(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 2, "dump STREAM FILE")
	shards, err := serverOf(ts).Shards(args[0])
	ts.Check(err)
	var b strings.Builder
	for _, shard := range shards {
		records, err := serverOf(ts).Records(args[0], shard)
		ts.Check(err)
		for _, r := range records {
			fmt.Fprintf(&b, "%s %s\n", r.PartitionKey, r.Data)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o644))
}

// exits CODE ARGS... runs kinetl and wants this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 2, "exits CODE ARGS...")
	code := exitDone
	var failed *exec.ExitError
	if err := ts.Exec("kinetl", args[1:]...); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := count(ts, args[0]); code != want {
		ts.Fatalf("kinetl %s: exit code %d, want %d", strings.Join(args[1:], " "), code, want)
	}
}
