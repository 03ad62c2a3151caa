package main

import (
	"database/sql"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kinetl/kinetl"
)

// sql DRIVER FILE STATEMENT changes a database file (driver duckdb) or a lease store
// (driver sqlite), as somebody else would.
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	wants(ts, neg, args, 3, "sql DRIVER FILE STATEMENT")
	db, err := sql.Open(args[0], ts.MkAbs(args[1]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[2])
	ts.Check(err)
}

// An id with a slip of the pen, or cut off, is told as it is.
func TestNearMatches(t *testing.T) {
	open := []kinetl.Incident{{ID: "3f9a1c2b4d5e"}, {ID: "aaaaaaaaaaaa"}}
	for id, want := range map[string]string{
		"3f9a1c2b4d5f":  ": did you mean 3f9a1c2b4d5e?",
		"3f9a":          ": did you mean 3f9a1c2b4d5e?",
		"3F9A1C2B4D":    ": did you mean 3f9a1c2b4d5e?",
		"3f9a1c2b4d5e0": ": did you mean 3f9a1c2b4d5e?",
		"a":             ": open are 3f9a1c2b4d5e, aaaaaaaaaaaa",
		"bbbbbbbbbbbb":  ": open are 3f9a1c2b4d5e, aaaaaaaaaaaa",
	} {
		if got := nearMatches(id, open); got != want {
			t.Errorf("%s%s, want %s", id, got, want)
		}
	}
	if got := nearMatches("x", nil); got != ", nor is any other" {
		t.Errorf("x%s", got)
	}
}
