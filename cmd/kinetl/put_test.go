package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

func startServer(t *testing.T, stream string, shards int) *kinesistest.Server {
	t.Helper()
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := server.CreateStream(stream, shards); err != nil {
		t.Fatal(err)
	}
	return server
}

// kinetlWith runs the program with text on its stdin.
func kinetlWith(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, log bytes.Buffer
	code = execute(context.Background(), args, strings.NewReader(stdin), &out, &log)
	return code, out.String(), log.String()
}

func recordsOf(t *testing.T, server *kinesistest.Server, stream string) (all []kinesistest.Record) {
	t.Helper()
	shards, err := server.Shards(stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range shards {
		records, err := server.Records(stream, shard)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, records...)
	}
	return all
}

// Requests that are refused in part are finished before the next one is begun: a
// key's records of different requests stay in order, and none is sent twice.
func TestPutKeepsRequestsInOrder(t *testing.T) {
	server := startServer(t, "orders", 1)
	for after := range 3 {
		server.Fault(kinesistest.Fault{Op: "PutRecords", After: 2 * after, Times: 1, Do: kinesistest.PartialPut(requestRecords - 20)})
	}
	var text strings.Builder
	const n = 3 * requestRecords
	for i := range n {
		fmt.Fprintf(&text, "%d\n", i)
	}
	code, stdout, stderr := kinetlWith(text.String(), "put", "orders", "--endpoint", server.URL())
	if code != exitDone {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	records := recordsOf(t, server, "orders")
	if len(records) != n {
		t.Fatalf("the stream holds %d records, want %d", len(records), n)
	}
	seen := map[int]bool{}
	for place, r := range records {
		var i int
		if _, err := fmt.Sscan(string(r.Data), &i); err != nil {
			t.Fatal(err)
		}
		if i/requestRecords != place/requestRecords {
			t.Errorf("record %d of request %d came as number %d", i, i/requestRecords, place)
		}
		if seen[i] {
			t.Errorf("record %d is there twice", i)
		}
		seen[i] = true
	}
}

// A line is measured with its key; one that is too long does not fill the memory, and
// those around it are put.
func TestPutNamesLinesThatAreTooLong(t *testing.T) {
	server := startServer(t, "orders", 1)
	fits := 1<<20 - len(`{"k":"a"}`) - 1
	exactly := `{"k":"a"}` + strings.Repeat(" ", fits)
	text := exactly + "\n" + exactly + " \n" + strings.Repeat("x", 3<<20) + "\r\n" + `{"k":"b"}` + "\r\n"
	code, stdout, stderr := kinetlWith(text, "put", "orders", "--key", "k", "--endpoint", server.URL())
	if code != exitFailed || !strings.HasPrefix(stdout, "2 records put into stream orders, 2 not put") {
		t.Errorf("exit code %d, printed %q", code, stdout)
	}
	for _, want := range []string{"stdin:2: the record and its key have 1048577 bytes, more than the 1048576", "stdin:3: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("said %q, want %q", stderr, want)
		}
	}
	records := recordsOf(t, server, "orders")
	if len(records) != 2 || string(records[0].Data) != exactly || string(records[1].Data) != `{"k":"b"}` {
		t.Errorf("the stream holds %d records, want the first and the last", len(records))
	}
}

// A request has 5 MiB at most, so large records make more of them.
func TestPutLimitsRequests(t *testing.T) {
	server := startServer(t, "orders", 1)
	line := strings.Repeat("x", 1<<20-100)
	code, stdout, stderr := kinetlWith(strings.Repeat(line+"\n", 12), "put", "orders", "--endpoint", server.URL())
	if code != exitDone {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	if n := len(recordsOf(t, server, "orders")); n != 12 {
		t.Errorf("the stream holds %d records, want 12", n)
	}
	requests := 0
	for _, c := range server.Calls() {
		if c.Op == "PutRecords" {
			requests++
		}
	}
	if requests != 3 {
		t.Errorf("%d requests, want 5, 5 and 2 records in 3", requests)
	}
}

func TestPutStopsWithItsContext(t *testing.T) {
	server := startServer(t, "orders", 1)
	ctx, cancel := context.WithCancel(t.Context())
	server.Fault(kinesistest.Fault{Op: "PutRecords", Do: kinesistest.PartialPut(1), Match: func(*kinesistest.Call) bool { cancel(); return true }})
	var out, log bytes.Buffer
	code := execute(ctx, []string{"put", "orders", "--endpoint", server.URL()}, strings.NewReader("a\nb\n"), &out, &log)
	if code != exitFailed || !strings.Contains(log.String(), "stopped after") {
		t.Errorf("exit code %d, said %q", code, log.String())
	}
}
