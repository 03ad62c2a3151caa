package duckdb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/kinetl/kinetl"
)

const replayEnv = "KINETL_TEST_REPLAY"

// stored is a value of each class, and the text that it has in wider columns.
var stored = []struct {
	class  kinetl.Class
	value  any
	number string // in a column of numbers as text; empty: does not go there
	json   string
}{
	{kinetl.Empty, "{}", "", "{}"},
	{kinetl.Bool, true, "", "true"},
	{kinetl.Int53, 7, "7", "7"},
	{kinetl.Int64, 9007199254740993, "9007199254740993", "9007199254740993"},
	{kinetl.Decimal, decimal128.FromI64(12), "12", "12"},
	{kinetl.Double, 2.0, "2", "2"},
	{kinetl.Number, "0.1000000000000000000001", "", "0.1000000000000000000001"},
	{kinetl.String, `say "hi"`, "", `"say \"hi\""`},
}

// widenings is every step up from one class to another that a column can take, as
// one column each.
func widenings() (from, to kinetl.Schema, values []any, want []string) {
	for _, s := range stored {
		for wide := kinetl.Bool; wide <= kinetl.JSON; wide++ {
			if s.class == wide || s.class.Join(wide) != wide {
				continue
			}
			name := fmt.Sprintf("%s_%s", s.class, wide)
			from = append(from, kinetl.Column{Name: name, Class: s.class})
			to = append(to, kinetl.Column{Name: name, Class: wide})
			values = append(values, s.value)
			switch {
			case wide == kinetl.JSON:
				want = append(want, s.json)
			case s.class == kinetl.Empty:
				want = append(want, "<nil>")
			case wide == kinetl.Number:
				want = append(want, s.number)
			case wide == kinetl.Double:
				want = append(want, s.number+".0") // as CAST prints it
			default:
				want = append(want, s.number)
			}
		}
	}
	return from, to, values, want
}

// widenAndDie stores a row, widens every column, and dies with the changes in the
// log only; at says after which transaction.
func widenAndDie(path, at string) int {
	from, to, values, _ := widenings()
	commits := 0
	d, err := New(Options{Path: path, Observe: func(phase string) {
		if phase == "committed" && strings.HasPrefix(at, "round") {
			if commits--; commits == 0 {
				die()
			}
		}
	}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	if _, err = d.Prepare(ctx, "orders", from, kinetl.Allow); err == nil {
		_, err = d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}})
	}
	if err == nil {
		_, err = d.Commit(ctx, "orders", []kinetl.Part{textPart(kinetl.Oldest, kinetl.End, from, values)})
	}
	if _, scanErr := fmt.Sscanf(at, "round %d", &commits); scanErr != nil {
		commits = 0
	}
	if err == nil {
		_, err = d.Prepare(ctx, "orders", to, kinetl.Allow)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	die()
	return 0
}

func die() {
	self, _ := os.FindProcess(os.Getpid()) // always found
	_ = self.Kill()
	select {}
}

// Whatever a column was widened from and to, a database whose process died before
// the change reached the file can be opened again and holds the converted values.
// DuckDB logs an ALTER as an expression; one with a function or the type JSON in it
// can never be replayed.
func TestWideningSurvivesReplay(t *testing.T) {
	for _, at := range []string{"end", "round 1", "round 2"} {
		t.Run(at, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orders.duckdb")
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), replayEnv+"="+path, phaseEnv+"="+at)
			out, err := child.CombinedOutput()
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the process was not killed: %v: %s", err, out)
			}
			d := open(t, Options{Path: path})
			_, to, _, want := widenings()
			schema, err := d.Prepare(t.Context(), "orders", to, kinetl.Allow)
			if err != nil {
				t.Fatal(err)
			}
			if diff := to.Differs(schema); diff != "" {
				t.Fatal(diff)
			}
			for i, c := range to {
				var got any
				if err := d.db.QueryRow(fmt.Sprintf("SELECT CAST(%s AS VARCHAR) FROM orders", quote(c.Name))).Scan(&got); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(got) != want[i] {
					t.Errorf("%s: %v, want %s", c.Name, got, want[i])
				}
			}
		})
	}
}
