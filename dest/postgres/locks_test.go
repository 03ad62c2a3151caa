package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl"
)

var oneColumn = kinetl.Schema{{Name: "n", Class: kinetl.Int53}}

// watched is a worker whose phases call hook.
func (h *harness) watched(t *testing.T, o Options, hook func(phase string)) *Destination {
	t.Helper()
	o.Observe = func(phase string) { hook(phase) }
	o.Application = "app"
	d := h.open(t, o)
	t.Cleanup(func() { d.Close() })
	return d
}

// waitUntil polls a query until it gives true.
func (h *harness) waitUntil(t *testing.T, what, query string, args ...any) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	late := time.After(30 * time.Second)
	for {
		if h.text(t, "SELECT ("+query+")::text", args...) == "true" {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("waited for nothing: %s", what)
		}
	}
}

// R9: nobody changes the table between the look at its columns and the COMMIT.
func TestCommitHoldsTheSchema(t *testing.T) {
	h := newHarness(t, "public")
	h.worker(t, oneColumn)
	h.exec(t, "SET lock_timeout = '100ms'")
	tried := 0
	d := h.watched(t, Options{}, func(phase string) {
		if phase == "insert" || phase == "watermarks" || phase == "commit" {
			tried++
			if _, err := h.raw.Exec(context.Background(), "ALTER TABLE orders ALTER n TYPE text"); code(err) != lockNotAvailable {
				t.Errorf("during %q the column could be changed: %v", phase, err)
			}
		}
	})
	commitAll(t, d, textPart(kinetl.Oldest, at(1), oneColumn, []any{1}))
	if tried != 3 {
		t.Errorf("looked %d times", tried)
	}
}

// R9: the server takes the bytes of a bigint for a text. What is written for the table
// as it was is not sent to the table as it is.
func TestNoBytesOfAnotherType(t *testing.T) {
	h := newHarness(t, "public")
	d, _ := h.worker(t, oneColumn)
	p := textPart(kinetl.Oldest, at(1), oneColumn, []any{0x4142434445464748})
	var before relation
	look := func(t *tx) (err error) {
		before, err = t.relation(context.Background(), "orders")
		return err
	}
	if err := d.transact(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	h.exec(t, "ALTER TABLE orders ALTER n TYPE text")
	err := d.rehearse(t.Context(), func(t *tx) error {
		return t.copyRows(context.Background(), "orders", before.columns, []stretch{{&p, 0, 1}})
	})
	if err != nil {
		t.Fatalf("the server noticed (%v): this proves nothing", err)
	}
	_, err = d.Commit(t.Context(), "orders", []kinetl.Part{p})
	var changed *kinetl.SchemaChangedError
	if !errors.As(err, &changed) {
		t.Fatalf("commit: %v, want *SchemaChangedError", err)
	}
	for _, table := range []string{"orders", "orders_dead_letters"} {
		if n := h.text(t, "SELECT count(*)::text FROM "+table); n != "0" {
			t.Errorf("%s rows in %s", n, table)
		}
	}
}

// R9: nor to a dead-letter table that somebody changed.
func TestADeadLetterTableThatWasChanged(t *testing.T) {
	h := newHarness(t, "public")
	d, _ := h.worker(t, oneColumn)
	h.exec(t, "ALTER TABLE orders_dead_letters ALTER stream_created TYPE text")
	p := textPart(kinetl.Oldest, at(1), oneColumn)
	p.Rows = nil
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: "1", Reason: "x"}}
	if _, err := d.Commit(t.Context(), "orders", []kinetl.Part{p}); err == nil || !strings.Contains(err.Error(), "stream_created") {
		t.Fatalf("commit: %v, want the column named", err)
	}
	h.exec(t, "DROP TABLE orders_dead_letters")
	_, err := d.Commit(t.Context(), "orders", []kinetl.Part{p})
	var changed *kinetl.SchemaChangedError
	if !errors.As(err, &changed) {
		t.Fatalf("commit without the table: %v, want *SchemaChangedError", err)
	}
	if _, err := d.Prepare(t.Context(), "orders", nil, kinetl.Refuse); err != nil {
		t.Fatal(err)
	}
	commitAll(t, d, p)
}

// R10: COMMIT of a transaction in which a statement failed is a success to the server,
// and stores nothing. It counts as the failure that it is, and the connection is not
// used again.
func TestCommitOfAnAbortedTransaction(t *testing.T) {
	h := newHarness(t, "public")
	ctx := context.Background()
	for _, query := range []string{"CREATE TABLE n (n int UNIQUE)", "BEGIN", "INSERT INTO n VALUES (1)"} {
		h.exec(t, query)
	}
	if _, err := h.raw.Exec(ctx, "SELECT 1/0"); err == nil {
		t.Fatal("no failure")
	}
	if tag, err := h.raw.Exec(ctx, "COMMIT"); err != nil || tag.String() != "ROLLBACK" {
		t.Fatalf("the server answers %s, %v: this proves nothing", tag, err)
	}

	d := h.open(t, Options{})
	defer d.Close()
	process := func(fail bool) (pid int) {
		err := d.transact(ctx, func(t *tx) error {
			err := t.query(ctx, func(scan func(...any) error) error { return scan(&pid) }, "SELECT pg_backend_pid()")
			_, _ = t.exec(ctx, "INSERT INTO n VALUES (1)")
			if fail {
				_, _ = t.exec(ctx, "SELECT 1/0")
			}
			return err
		})
		if (err != nil) != fail {
			t.Fatalf("failed: %v, error %v", fail, err)
		}
		return pid
	}
	failed := process(true)
	if n := h.text(t, "SELECT count(*)::text FROM n"); n != "0" {
		t.Fatalf("%s rows", n)
	}
	if again := process(false); again == failed {
		t.Error("the connection of a failed transaction was used again")
	}
	h.waitUntil(t, "the connection closed", "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", failed)
}

// R11: watermark rows are locked last, when everything else is stored, in the order of
// shards, whatever the order of parts.
func TestWatermarksComeLast(t *testing.T) {
	h := newHarness(t, "public")
	d, _ := h.worker(t, oneColumn)
	shards := []kinetl.ShardID{shard.Sibling("shardId-000000000003"), shard, shard.Sibling("shardId-000000000002")}
	var parts []kinetl.Part
	for _, s := range shards {
		if _, err := d.Claim(t.Context(), "orders", []kinetl.Claim{{Shard: s, Start: kinetl.Oldest}}); err != nil {
			t.Fatal(err)
		}
		p := textPart(kinetl.Oldest, at(1), oneColumn, []any{1})
		p.Shard, p.Gap = s, &kinetl.Gap{To: at(1), Reason: "x"}
		p.DeadLetters = []kinetl.DeadLetter{{Sequence: "1", Reason: "x"}}
		parts = append(parts, p)
	}
	h.exec(t, `CREATE TABLE moved (n serial, shard text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.moved (shard) VALUES (NEW.shard); RETURN NEW; END$$;
		CREATE TRIGGER note BEFORE UPDATE ON _kinetl_watermarks FOR EACH ROW EXECUTE FUNCTION note()`)
	locked := map[string]bool{}
	d = h.watched(t, Options{}, func(phase string) {
		_, err := h.raw.Exec(context.Background(), "SELECT FROM _kinetl_watermarks FOR UPDATE NOWAIT")
		locked[phase] = code(err) == lockNotAvailable
	})
	if _, err := d.Commit(t.Context(), "orders", parts); err != nil {
		t.Fatal(err)
	}
	for phase, want := range map[string]bool{"insert": false, "dead letters": false, "watermarks": false, "commit": true, "committed": false} {
		if got, looked := locked[phase]; got != want || !looked {
			t.Errorf("during %q rows are locked: %v, want %v", phase, got, want)
		}
	}
	if got := h.text(t, "SELECT string_agg(right(shard, 1), '' ORDER BY n) FROM moved"); got != "023" {
		t.Errorf("watermarks moved in the order %s", got)
	}
}

// R11: a watermark that moved after it was read makes the whole commit come to nothing.
func TestAWatermarkThatMovedMeanwhile(t *testing.T) {
	h := newHarness(t, "public")
	h.worker(t, oneColumn)
	for name, meddle := range map[string]string{
		"moved":   "UPDATE _kinetl_watermarks SET through = '" + string(at(5)) + "'",
		"adopted": "UPDATE _kinetl_watermarks SET application = 'other'",
		"gone":    "DELETE FROM _kinetl_watermarks",
	} {
		meddled := false
		d := h.watched(t, Options{}, func(phase string) {
			if phase == "watermarks" && !meddled {
				meddled = true
				h.exec(t, meddle)
			}
		})
		p := textPart(kinetl.Oldest, at(9), oneColumn, []any{1})
		p.DeadLetters = []kinetl.DeadLetter{{Sequence: "1", Reason: "x"}}
		if _, err := d.Commit(t.Context(), "orders", []kinetl.Part{p}); err == nil || !meddled {
			t.Fatalf("%s: the commit succeeded", name)
		}
		if n := h.text(t, "SELECT (SELECT count(*) FROM orders)::text || (SELECT count(*) FROM orders_dead_letters)"); n != "00" {
			t.Fatalf("%s: stored %s", name, n)
		}
		if report, err := d.Commit(t.Context(), "orders", []kinetl.Part{p}); err != nil || len(report.Fenced) != 1 {
			t.Fatalf("%s: repeated: %v, fenced %v, want it fenced", name, err, report.Fenced)
		}
		h.exec(t, "DELETE FROM _kinetl_watermarks")
		if _, err := d.Claim(t.Context(), "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}}); err == nil {
			continue
		}
		t.Fatal("claim")
	}
}

// R11: what a session relies on is set in it, whatever the database has for a default.
func TestSession(t *testing.T) {
	h := newHarness(t, "public")
	name := h.text(t, "SELECT current_database()")
	h.exec(t, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	h.exec(t, "ALTER DATABASE "+name+" SET idle_in_transaction_session_timeout = 0")
	h.exec(t, "ALTER DATABASE "+name+" SET default_transaction_isolation = 'serializable'")
	h.exec(t, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	h.exec(t, "ALTER DATABASE "+name+" SET extra_float_digits = 0")
	d := h.open(t, Options{Application: "app", LeaseTime: 3 * time.Second})
	defer d.Close()
	got := map[string]string{}
	err := d.transact(t.Context(), func(t *tx) error {
		return t.query(context.Background(), func(scan func(...any) error) error {
			var name, value string
			err := scan(&name, &value)
			got[name] = value
			return err
		}, "SELECT name, setting FROM pg_settings")
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"synchronous_commit": "on", "idle_in_transaction_session_timeout": "1500", "lock_timeout": "1500", "transaction_isolation": "read committed",
		"transaction_read_only": "off", "extra_float_digits": "1", "TimeZone": "UTC", "client_encoding": "UTF8", "application_name": "kinetl/app",
	} {
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
	h.exec(t, "ALTER DATABASE "+name+" SET synchronous_commit = remote_apply")
	strict := h.open(t, Options{})
	defer strict.Close()
	err = strict.transact(t.Context(), func(tx *tx) error {
		return tx.query(context.Background(), func(scan func(...any) error) error {
			var value string
			err := scan(&value)
			if value != "remote_apply" {
				t.Errorf("synchronous_commit was lowered to %s", value)
			}
			return err
		}, "SHOW synchronous_commit")
	})
	if err != nil {
		t.Fatal(err)
	}
}

const shortLease = 3 * time.Second

// session is what a worker that was stopped leaves. Background is for a call that does
// not return: it ends with the test.
type session struct {
	*pgx.Conn
	background func(call func(context.Context))
}

// stuck opens a session of an application, in a transaction.
func (h *harness) stuck(t *testing.T, application string, do func(session) error) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(h.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = marker(application)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		conn.Close(context.Background())
	})
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := do(session{conn, func(call func(context.Context)) { wg.Go(func() { call(ctx) }) }}); err != nil {
		t.Fatal(err)
	}
	return conn
}

func execute(query string) func(session) error {
	return func(s session) error {
		_, err := s.Exec(context.Background(), query)
		return err
	}
}

func (h *harness) isAlive(t *testing.T, conn *pgx.Conn) bool {
	return h.text(t, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)::text", conn.PgConn().PID()) == "true"
}

// R11: a worker that was stopped in a transaction, and whose locks the server therefore
// keeps, holds up no call of its successor for longer than a lease, and then some where
// the machine is busy.
func TestAStoppedWorkerHoldsUpNobody(t *testing.T) {
	claim := func(d *Destination) error {
		_, err := d.Claim(context.Background(), "orders", []kinetl.Claim{{Shard: shard, Start: kinetl.Oldest}, {Shard: shard.Sibling("new"), Start: kinetl.Oldest}})
		return err
	}
	commit := func(d *Destination) error {
		report, err := d.Commit(context.Background(), "orders", []kinetl.Part{textPart(kinetl.Oldest, at(1), oneColumn, []any{1})})
		if err == nil && len(report.Fenced) > 0 {
			return fmt.Errorf("fenced %v", report.Fenced)
		}
		return err
	}
	prepare := func(d *Destination) error {
		_, err := d.Prepare(context.Background(), "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
		return err
	}
	copying := func(s session) error {
		r, w := io.Pipe()
		s.background(func(ctx context.Context) {
			context.AfterFunc(ctx, func() { w.Close() })
			_, _ = s.PgConn().CopyFrom(ctx, r, "COPY orders (n) FROM STDIN") // its session is ended
		})
		_, err := w.Write([]byte("1\n"))
		return err
	}
	for _, c := range []struct {
		name  string
		holds func(session) error
		call  func(*Destination) error
	}{
		{"commit behind a watermark's row", execute("UPDATE _kinetl_watermarks SET updated_at = now()"), commit},
		{"commit behind an ALTER", execute("ALTER TABLE orders ADD COLUMN other int"), commit},
		{"claim behind a claim", execute("INSERT INTO _kinetl_watermarks SELECT application, table_name, stream, stream_created, 'new', through, sink, updated_at FROM _kinetl_watermarks"), claim},
		{"prepare behind a COPY without data", copying, prepare},
		{"prepare behind a prepare", execute(fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", lockKey("table", "public", "orders"))), prepare},
		{"prepare behind a commit", execute("LOCK TABLE orders IN ROW EXCLUSIVE MODE"), prepare},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, "public")
			h.worker(t, oneColumn)
			old := h.stuck(t, "app", c.holds)
			from := time.Now()
			d := h.open(t, Options{Application: "app", LeaseTime: shortLease})
			defer d.Close()
			tries := 0
			for err := c.call(d); err != nil; err = c.call(d) {
				if tries++; code(err) != lockNotAvailable || tries > 3 {
					t.Fatalf("after %v: %v", time.Since(from), err)
				}
			}
			if took := time.Since(from); took > 2*shortLease {
				t.Errorf("it took %v with a lease of %v", took, shortLease)
			}
			h.waitUntil(t, "the old session ended", "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", old.PgConn().PID())
		})
	}
}

// R11: the server itself ends a session of ours that idles in a transaction.
func TestAnIdleTransactionEnds(t *testing.T) {
	h := newHarness(t, "public")
	d := h.open(t, Options{LeaseTime: 100 * time.Millisecond})
	defer d.Close()
	err := d.transact(t.Context(), func(tx *tx) error {
		h.waitUntil(t, "the session ended", "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", tx.conn.PgConn().PID())
		return nil
	})
	if err == nil {
		t.Fatal("the commit succeeded")
	}
}

// R11: sessions of others, and those of this application that are at work, are left
// alone; the error says who is in the way.
func TestOthersAreLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name, application string
		holds             func(session) error
	}{
		{"somebody who reads", "reports", execute("SELECT FROM orders")},
		{"at work", "app", func(s session) error {
			_, err := s.Exec(context.Background(), "SELECT FROM orders")
			s.background(func(ctx context.Context) { _, _ = s.Exec(ctx, "SELECT pg_sleep(60)") }) // until it is cancelled
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, "public")
			h.worker(t, oneColumn)
			other := h.stuck(t, c.application, c.holds)
			d := h.open(t, Options{Application: "app", LeaseTime: 500 * time.Millisecond})
			defer d.Close()
			// Nothing waits where nothing is changed.
			if _, err := d.Prepare(t.Context(), "orders", oneColumn, kinetl.Refuse); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_, err := d.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
				if code(err) != lockNotAvailable || !strings.Contains(err.Error(), fmt.Sprint("process ", other.PgConn().PID())) {
					t.Fatalf("prepare: %v, want the session named", err)
				}
			}
			if !h.isAlive(t, other) {
				t.Error("the session was ended")
			}
		})
	}
}

// R12: a Prepare waits for another of the same table, under whatever spelling, and then
// sees what that has made.
func TestPreparesComeOneAfterTheOther(t *testing.T) {
	h := newHarness(t, "public")
	h.worker(t, oneColumn)
	second := h.open(t, Options{Application: "other"})
	defer second.Close()
	var wg sync.WaitGroup
	var once sync.Once
	first := h.watched(t, Options{}, func(phase string) {
		if phase != "alter" {
			return
		}
		once.Do(func() {
			wg.Go(func() {
				if _, err := second.Prepare(context.Background(), "ORDERS", kinetl.Schema{{Name: "EXTRA", Class: kinetl.Int64}, {Name: "n", Class: kinetl.Double}}, kinetl.Refuse); err != nil {
					t.Errorf("second: %v", err)
				}
			})
			h.waitUntil(t, "the second waits at the advisory lock", "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'kinetl/other' AND wait_event = 'advisory')")
		})
	})
	if _, err := first.Prepare(t.Context(), "orders", kinetl.Schema{{Name: "extra", Class: kinetl.Int53}, {Name: "n", Class: kinetl.Decimal}}, kinetl.Refuse); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	got, err := first.Prepare(t.Context(), "orders", nil, kinetl.Refuse)
	if want := (kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "extra", Class: kinetl.Int64}}); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v (%v), want %v", got, err, want)
	}
}

// R12: a column that somebody adds between the look at the catalogue and the ALTER is
// theirs, and is never taken for the one that was wanted.
func TestAColumnThatSomebodyAddedFirst(t *testing.T) {
	h := newHarness(t, "public")
	h.worker(t, oneColumn)
	added := false
	d := h.watched(t, Options{}, func(phase string) {
		if phase == "alter" && !added {
			added = true
			h.exec(t, "ALTER TABLE orders ADD COLUMN extra date")
		}
	})
	want := kinetl.Schema{{Name: "Extra", Class: kinetl.Int53}}
	if got, err := d.Prepare(t.Context(), "orders", want, kinetl.Refuse); err == nil {
		t.Fatalf("prepared %v", got)
	}
	got, err := d.Prepare(t.Context(), "orders", want, kinetl.Refuse)
	if err != nil || len(got) != 2 || !got[1].Cap || got[1].Native != "date" {
		t.Fatalf("prepared %v (%v), want a cap", got, err)
	}
}
