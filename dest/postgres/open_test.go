package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/dest/desttest"
)

const secret = "hunter2hunter2"

// The password is in no error, whatever is wrong with the rest.
func TestErrorsHoldNoPassword(t *testing.T) {
	h := newHarness(t, "public")
	u, err := url.Parse(h.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("postgres", secret)
	for _, dsn := range []string{
		u.String(),
		"postgres://u:" + secret + "@127.0.0.1:1/db",
		"postgres://u:" + secret + "@host.invalid/db?connect_timeout=1",
		"postgres://u:" + secret + "/x@h/db",
		"postgres://u:%zz" + secret + "@h/db",
		"postgres://u:" + secret + "@h:port/db",
		"postgres://u:" + secret + "@h/db?sslmode=banana",
		"postgres://u:" + secret + "@h/db?sslrootcert=/not/there&sslmode=verify-full",
		"postgres://u@h/db?password=" + secret + "&connect_timeout=x",
		"postgres//u:" + secret + "@h",
		"host=127.0.0.1 port=1 password=" + secret,
		"host=h password='" + secret,
		"host=h port=x password = '" + secret + "'",
		secret,
	} {
		d, err := New(t.Context(), Options{URL: dsn})
		if err == nil {
			d.Close()
			t.Errorf("%s: no error", dsn)
			continue
		}
		if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secret) || strings.Contains(text, "\n") {
			t.Errorf("%s: %s", dsn, text)
		}
	}
	if _, err := New(t.Context(), Options{}); err == nil {
		t.Error("no URL, and no error")
	}
	d, err := New(t.Context(), Options{URL: h.dsn, Password: secret})
	if err == nil {
		d.Close()
		t.Error("the password of the options does not win")
	} else if strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}

// FuzzParseURL: of a connection string that can't be read, no error shows anything.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"postgres://u:|@h/db", "postgres://u:|@h:x/db", "password=| port=x", "password='|", "postgres://h/db?password=|&port=x", "|", "host=h sslmode=| user=u"} {
		before, after, _ := strings.Cut(s, "|")
		f.Add(before, after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		config, err := parseURL(before + secret + after)
		if err != nil && !errors.Is(err, os.ErrNotExist) && strings.Contains(err.Error(), secret) {
			t.Fatalf("%q: %v", before+"|"+after, err)
		}
		if err == nil && config == nil {
			t.Fatal("neither a config nor an error")
		}
	})
}

// A file that the URL names is a fault that can be told.
func TestAMissingCertificate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.crt")
	_, err := New(t.Context(), Options{URL: "postgres://u:" + secret + "@h/db?sslmode=verify-full&sslrootcert=" + path})
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("%v, want the file named", err)
	}
}

// A database that can't hold every text is refused at once.
func TestAnotherEncoding(t *testing.T) {
	h := newHarness(t, "public")
	name := h.text(t, "SELECT current_database() || '_latin'")
	h.exec(t, "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	defer h.exec(t, "DROP DATABASE "+name+" WITH (FORCE)")
	u, err := url.Parse(h.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	if _, err := New(t.Context(), Options{URL: u.String()}); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		t.Fatalf("%v, want the encoding named", err)
	}
}

// Connections that the server ended while they lay idle are replaced without an error.
func TestAServerThatWasAway(t *testing.T) {
	h := newHarness(t, "public")
	d, _ := h.worker(t, oneColumn)
	h.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kinetl/app'")
	h.waitUntil(t, "no connection is left", "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'kinetl/app'")
	commitAll(t, d, textPart(kinetl.Oldest, at(1), oneColumn, []any{1}))
}

// Calls take turns when there are more of them than connections, a call that waits for
// one ends with its context, and one after Close fails.
func TestConnections(t *testing.T) {
	h := newHarness(t, "public")
	d := h.open(t, Options{Application: "app"})
	held := make(chan struct{})
	free := make(chan struct{})
	done := make(chan error, 3*maxConns)
	for range 3 * maxConns {
		go func() {
			done <- d.transact(context.Background(), func(*tx) error {
				select {
				case held <- struct{}{}:
				case <-free:
				}
				<-free
				return nil
			})
		}()
	}
	for range maxConns {
		<-held
	}
	if n := h.text(t, "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'kinetl/app'"); n != fmt.Sprint(maxConns) {
		t.Errorf("%s connections, want %d", n, maxConns)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := d.transact(ctx, func(*tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call without a connection: %v", err)
	}
	close(free)
	for range 3 * maxConns {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if err := d.transact(context.Background(), func(*tx) error { return nil }); err == nil {
		t.Error("a call after Close succeeded")
	}
	h.waitUntil(t, "no connection is left", "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'kinetl/app'")
}

// R15: the sink's id outlives a comment that somebody writes, and a copy of the table.
func TestSinkID(t *testing.T) {
	h := newHarness(t, "public")
	sink := func() string {
		d := h.open(t, Options{Application: "app"})
		defer d.Close()
		got, err := d.Claim(t.Context(), "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}})
		if err != nil {
			t.Fatal(err)
		}
		return got.Sink
	}
	first := sink()
	h.exec(t, "COMMENT ON TABLE _kinetl_watermarks IS 'mine'")
	if again := sink(); again != first || first == "" {
		t.Errorf("sink %q, was %q", again, first)
	}
	h.exec(t, "DROP TABLE _kinetl_watermarks")
	if again := sink(); again == first {
		t.Error("tables that were made anew are the same sink")
	}
}

// Any schema and any rows are read back as they were stored, whatever the names.
func TestRoundTrip(t *testing.T) {
	h := newHarness(t, "public")
	d := h.Open(t, "app", false)
	defer d.Close()
	table := 0
	rapid.Check(t, func(rt *rapid.T) {
		table++
		name := "t" + rapid.StringMatching(`[a-zA-Z "'.\\]{0,80}`).Draw(rt, "table") + fmt.Sprint(table)
		var schema kinetl.Schema
		for i := range rapid.IntRange(1, 6).Draw(rt, "columns") {
			column := rapid.StringOfN(rapid.RuneFrom([]rune("abcXYZ \"'.-\u00e9\u65e5\\")), 1, 80, -1).Draw(rt, "column") + string(rune('0'+i))
			schema = append(schema, kinetl.Column{Name: column, Class: rapid.SampledFrom([]kinetl.Class{kinetl.String, kinetl.Number, kinetl.JSON, kinetl.Int64, kinetl.Double, kinetl.Bool}).Draw(rt, "class")})
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
		got, err := d.Prepare(ctx, name, schema, kinetl.Refuse)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := schema.Differs(got); diff != "" {
			rt.Fatal(diff)
		}
		if _, err := d.Claim(ctx, name, []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err != nil {
			rt.Fatal(err)
		}
		p := textPart(kinetl.Oldest, at(len(rows)), schema, rows...)
		if _, err := d.Commit(ctx, name, []kinetl.Part{p}); err != nil {
			rt.Fatal(err)
		}
		stored := h.read(t, name, schema).Rows
		want := desttest.RowsOf(p, schema)
		if len(stored) != len(want) {
			rt.Fatalf("%d rows read, %d stored", len(stored), len(want))
		}
		for r := range want {
			for _, c := range schema {
				text, ok := stored[r].Cells[c.Name]
				if w, has := want[r].Cells[c.Name]; ok != has || text != w {
					rt.Fatalf("row %d column %q: read %q (%v), stored %q", r, c.Name, text, ok, w)
				}
			}
		}
	})
}

func drawCell(rt *rapid.T, class kinetl.Class) any {
	if rapid.IntRange(0, 4).Draw(rt, "null") == 0 {
		return nil
	}
	text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 }))
	switch class {
	case kinetl.Int64:
		return rapid.Int().Draw(rt, "int")
	case kinetl.Double:
		return rapid.Float64().Draw(rt, "double")
	case kinetl.Bool:
		return rapid.Bool().Draw(rt, "bool")
	case kinetl.Number:
		return rapid.StringMatching(`-?[1-9][0-9]{0,50}\.[0-9]{0,30}[1-9]`).Draw(rt, "number")
	case kinetl.JSON:
		return `"` + rapid.StringMatching(`[ -!#-\[\]-~\x{e9}]*`).Draw(rt, "json") + `"`
	}
	return text.Draw(rt, "string")
}

// Check says whether New and Prepare would get on, and changes nothing.
func TestCheck(t *testing.T) {
	h := newHarness(t, "public")
	h.exec(t, "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD '"+secret+"'")
	defer h.exec(t, "DROP OWNED BY reader CASCADE; DROP ROLE reader")
	h.exec(t, "CREATE SCHEMA closed; CREATE SCHEMA ready; GRANT USAGE, CREATE ON SCHEMA ready TO reader")
	for _, c := range []struct{ url, schema, want, fault string }{
		{h.dsn, "new", "schema new will be made", ""},
		{h.dsn, "public", "PostgreSQL ", ""},
		{h.as(t, "reader"), "ready", "PostgreSQL ", ""},
		{h.as(t, "reader"), "new", "", "schema new"},
		{h.as(t, "reader"), "closed", "", "schema closed"},
		{strings.Replace(h.dsn, "/test", "/other", 1), "public", "", "does not exist"},
	} {
		got, err := Check(t.Context(), Options{URL: c.url, Schema: c.schema})
		if c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("schema %s: %v, want %q", c.schema, err, c.fault)
		}
		if c.fault == "" && (err != nil || !strings.Contains(got, c.want)) {
			t.Errorf("schema %s: %q (%v), want %q", c.schema, got, err, c.want)
		}
	}
	if n := h.text(t, "SELECT count(*)::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN ('new', 'public', 'ready')"); n != "0" {
		t.Errorf("%s tables were made", n)
	}
}
