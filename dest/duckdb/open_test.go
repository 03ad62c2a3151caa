package duckdb

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kinetl/kinetl"
	"pgregory.net/rapid"
)

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,5})?$`)

const holdEnv = "KINETL_TEST_HOLD_DUCKDB"

// TestMain lets the test binary be the other process: one that holds a file, or one
// that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(replayEnv); path != "" {
		os.Exit(widenAndDie(path, os.Getenv(phaseEnv)))
	}
	if path := os.Getenv(dieEnv); path != "" {
		os.Exit(commitAndDie(path, os.Getenv(phaseEnv)))
	}
	path := os.Getenv(holdEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if _, err := New(Options{Path: path}); err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString("open\n")
	bufio.NewReader(os.Stdin).ReadByte() // until the parent is done
}

// R32: whoever opens the file second is told who has it.
func TestSecondProcessIsToldTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.duckdb")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdEnv+"="+path)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		holder.Wait()
	}()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("the holder says %q (%v)", line, err)
	}

	_, err = New(Options{Path: path})
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("open: %v, want *LockedError", err)
	}
	if locked.PID != holder.Process.Pid || locked.Path != path || locked.Name == "" {
		t.Fatalf("%+v, want process %d", locked, holder.Process.Pid)
	}
	if text := err.Error(); strings.Contains(text, "\n") {
		t.Fatalf("more than one line: %s", text)
	}
}

func FuzzOpenError(f *testing.F) {
	f.Add(`IO Error: Could not set lock on file "/x": Conflicting lock is held in /usr/bin/a b (PID 12) by user root. See also`)
	f.Add(`IO Error: Could not set lock on file "/x": Conflicting lock is held in PID 99999999999999999999`)
	f.Add(`IO Error: Cannot open file "/x": Permission denied`)
	f.Fuzz(func(t *testing.T, text string) {
		err := openError("/x", errors.New(text))
		var locked *LockedError
		if got := errors.As(err, &locked); got != strings.Contains(text, "Could not set lock on file") {
			t.Fatalf("%q is taken for a lock: %v", text, got)
		}
	})
}

// Nothing is lost between one opening of the file and the next, the sink's id
// included (R15).
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it's.duckdb")
	schema := kinetl.Schema{{Name: "s", Class: kinetl.String}}
	var sink string
	for n := range 3 {
		d, err := New(Options{Path: path, Application: "app", MemoryLimit: 256 << 20, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if _, err := d.Prepare(ctx, "orders", schema, kinetl.Refuse); err != nil {
			t.Fatal(err)
		}
		got, err := d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: at(0)}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Through[shard] != at(n) || (n > 0 && got.Sink != sink) {
			t.Fatalf("opening %d: at %q in sink %s, want %d in %s", n, got.Through[shard], got.Sink, n, sink)
		}
		sink = got.Sink
		if _, err := d.Commit(ctx, "orders", []kinetl.Part{textPart(at(n), at(n+1), schema, []any{"x"})}); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := d.db.QueryRow("SELECT count(*) FROM orders").Scan(&rows); err != nil || rows != n+1 {
			t.Fatalf("%d rows (%v), want %d", rows, err, n+1)
		}
		// No view that handed rows over has stayed behind.
		if err := d.db.QueryRow("SELECT count(*) FROM duckdb_views() WHERE NOT internal").Scan(&rows); err != nil || rows != 0 {
			t.Fatalf("%d views left (%v)", rows, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPathsThatTheDriverWouldMisread(t *testing.T) {
	for _, path := range []string{"", "a?threads=1", "100%.duckdb", "a#b"} {
		if _, err := New(Options{Path: path}); err == nil {
			t.Errorf("path %q was opened", path)
		}
	}
}

// The quoting of names holds for any text: the engine gives the same name back.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"a", `"`, `""`, "a.b", "'; DROP TABLE x; --", "\u00e9", "\\", "\n", "SELECT"} {
		f.Add(s)
	}
	d, err := New(Options{Path: filepath.Join(f.TempDir(), "q.duckdb")})
	if err != nil {
		f.Fatal(err)
	}
	defer d.Close()
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || strings.ContainsRune(name, 0) || strings.ToValidUTF8(name, "") != name {
			return
		}
		rows, err := d.db.Query("SELECT 1 AS " + quote(name))
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		defer rows.Close()
		if got, err := rows.Columns(); err != nil || len(got) != 1 || got[0] != name {
			t.Fatalf("%q came back as %q (%v)", name, got, err)
		}
	})
}

// Any schema and any rows are read back as they were stored, whatever the names.
func TestRoundTrip(t *testing.T) {
	h := newHarness(t, "main")
	d := h.Open(t, "app", false)
	defer d.Close()
	table := 0
	rapid.Check(t, func(rt *rapid.T) {
		table++
		name := "t" + string(rune('a'+table%26)) + rapid.StringMatching(`[a-z "'.]{0,8}`).Draw(rt, "table") + "_" + at(table).String()
		var schema kinetl.Schema
		for i := range rapid.IntRange(1, 6).Draw(rt, "columns") {
			column := rapid.StringOfN(rapid.RuneFrom([]rune("abcXYZ \"'.-\u00e9\u65e5\\")), 1, 10, -1).Draw(rt, "column") + string(rune('0'+i))
			schema = append(schema, kinetl.Column{Name: column, Class: rapid.SampledFrom([]kinetl.Class{kinetl.String, kinetl.Number, kinetl.JSON, kinetl.Int64}).Draw(rt, "class")})
		}
		var rows [][]any
		for range rapid.IntRange(1, 20).Draw(rt, "rows") {
			var row []any
			for _, c := range schema {
				row = append(row, drawCell(rt, c.Class))
			}
			rows = append(rows, row)
		}
		ctx := context.Background()
		if _, err := d.Prepare(ctx, name, schema, kinetl.Refuse); err != nil {
			rt.Fatal(err)
		}
		if _, err := d.Claim(ctx, name, []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
			rt.Fatal(err)
		}
		if _, err := d.Commit(ctx, name, []kinetl.Part{textPart(kinetl.Oldest, at(len(rows)), schema, rows...)}); err != nil {
			rt.Fatal(err)
		}
		got := h.read(t, name, schema).Rows
		if len(got) != len(rows) {
			rt.Fatalf("%d rows read, %d stored", len(got), len(rows))
		}
		for r, row := range rows {
			for c, v := range row {
				text, ok := got[r].Cells[schema[c].Name]
				if ok != (v != nil) || ok && text != cellText(v) {
					rt.Fatalf("row %d column %q: read %q (%v), stored %v", r, schema[c].Name, text, ok, v)
				}
			}
		}
	})
}

func drawCell(rt *rapid.T, class kinetl.Class) any {
	if rapid.IntRange(0, 4).Draw(rt, "null") == 0 {
		return nil
	}
	switch class {
	case kinetl.Int64:
		return rapid.Int().Draw(rt, "int")
	case kinetl.Number:
		return rapid.StringMatching(`-?[1-9][0-9]{0,50}\.[0-9]{0,30}[1-9]`).Draw(rt, "number")
	case kinetl.JSON:
		return string(kinetl.QuoteJSON(nil, rapid.String().Draw(rt, "json")))
	}
	return rapid.String().Draw(rt, "string")
}

func cellText(v any) string {
	if n, ok := v.(int); ok {
		return strconv.Itoa(n)
	}
	return v.(string)
}
