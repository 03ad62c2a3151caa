package duckdb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
)

const (
	dieEnv   = "KINETL_TEST_DIE_DUCKDB"
	phaseEnv = "KINETL_TEST_DIE_AT"
)

var killSchema = kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "s", Class: kinetl.String}}

func killPart(n int) kinetl.Part {
	p := textPart(at(n), at(n+1), killSchema, []any{n, "x"}, []any{n, "y"})
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: fmt.Sprint(n), Reason: "x", Payload: []byte("x"), At: time.Unix(1, 0)}}
	return p
}

// commitAndDie stores one part, then goes on until the phase, where the process is
// killed. It returns the exit code if it gets past everything.
func commitAndDie(path, phase string) int {
	armed := false
	d, err := New(Options{Path: path, Observe: func(now string) {
		if armed && now == phase {
			die()
		}
	}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	_, err = d.Prepare(ctx, "orders", killSchema, kinetl.Refuse)
	if err == nil {
		_, err = d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: at(0)}})
	}
	if err == nil {
		_, err = d.Commit(ctx, "orders", []kinetl.Part{killPart(0)})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	armed = true
	_, err = d.Commit(ctx, "orders", []kinetl.Part{killPart(1)})
	if err == nil {
		_, err = d.Prepare(ctx, "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
	}
	fmt.Println(err)
	_ = d.Close()
	return 0
}

// R7, R10: whenever the process dies, rows, dead letters and watermark agree, and
// the next process goes on from there.
func TestKilledAtEachPhase(t *testing.T) {
	for _, phase := range []string{"begin", "insert", "dead letters", "watermarks", "commit", "committed", "alter", "checkpoint"} {
		t.Run(phase, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orders.duckdb")
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), dieEnv+"="+path, phaseEnv+"="+phase)
			out, err := child.CombinedOutput()
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the process was not killed at %q: %v: %s", phase, err, out)
			}
			d := open(t, Options{Path: path})
			ctx := context.Background()
			schema, err := d.Prepare(ctx, "orders", nil, kinetl.Refuse)
			if err != nil {
				t.Fatal(err)
			}
			claimed, err := d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard}})
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if phase == "committed" || phase == "alter" || phase == "checkpoint" {
				want = 2
			}
			if claimed.Through[shard] != at(want) {
				t.Fatalf("watermark %q, want %d", claimed.Through[shard], want)
			}
			if class := schema[0].Class; (class == kinetl.Number) != (phase == "checkpoint") {
				t.Fatalf("column n is %s", class)
			}
			wantCounts(t, d, 2*want, want)
			for n := want; n < 3; n++ {
				p := killPart(n)
				if schema[0].Class == kinetl.Number {
					p = textPart(at(n), at(n+1), schema, []any{"1", "x", nil}, []any{"2", "y", nil})
					p.DeadLetters = killPart(n).DeadLetters
				}
				if _, err := d.Commit(ctx, "orders", []kinetl.Part{p}); err != nil {
					t.Fatal(err)
				}
			}
			wantCounts(t, d, 6, 3)
		})
	}
}

func wantCounts(t *testing.T, d *Destination, rows, letters int) {
	t.Helper()
	var gotRows, gotLetters int
	if err := d.db.QueryRow("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM orders_dead_letters)").Scan(&gotRows, &gotLetters); err != nil {
		t.Fatal(err)
	}
	if gotRows != rows || gotLetters != letters {
		t.Fatalf("%d rows and %d dead letters, want %d and %d", gotRows, gotLetters, rows, letters)
	}
}
