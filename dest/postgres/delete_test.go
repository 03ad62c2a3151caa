package postgres

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kinetl/kinetl"
)

// R14: a worker that commits while rows are being deleted waits at the watermark, which
// is moved first, and stores nothing: what it has read is read again.
func TestACommitDuringADeletion(t *testing.T) {
	h := newHarness(t, "public")
	schema := kinetl.MetadataSchema(kinetl.MetadataColumns)
	d, _ := h.worker(t, schema)
	rows := func(after kinetl.Position, from, to int) kinetl.Part {
		var cells [][]any
		for n := from; n <= to; n++ {
			text := fmt.Sprint(n)
			cells = append(cells, []any{shard.Shard, text, nil, "key", kinetl.RecordID(shard, text, 0)})
		}
		return textPart(after, at(to), schema, cells...)
	}
	commitAll(t, d, rows(kinetl.Oldest, 1, 3))

	type outcome struct {
		report kinetl.CommitReport
		err    error
	}
	var once sync.Once
	waiting, answer := make(chan struct{}), make(chan outcome, 1)
	worker := h.watched(t, Options{}, func(phase string) {
		if phase == "watermarks" {
			once.Do(func() { close(waiting) })
		}
	})
	mover := h.watched(t, Options{}, func(phase string) {
		if phase != "delete" {
			return
		}
		go func() {
			report, err := worker.Commit(t.Context(), "orders", []kinetl.Part{rows(at(3), 4, 5)})
			answer <- outcome{report, err}
		}()
		<-waiting
		h.waitUntil(t, "the worker waits for the watermark", "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE%'")
	})
	deleted, err := mover.MoveAndDelete(t.Context(), "orders", []kinetl.Move{{Shard: shard, From: at(3), To: at(1), Again: at(2)}}, "again", false)
	if err != nil || deleted[shard].Rows != 2 {
		t.Fatalf("deleted %+v, %v", deleted, err)
	}
	if got := <-answer; got.err == nil && len(got.report.Fenced) == 0 {
		t.Error("the worker's rows were stored")
	}
	if left := h.text(t, "SELECT string_agg(_kinesis_sequence, ' ') FROM orders"); left != "1" {
		t.Errorf("rows of %s are left, want that of 1", left)
	}
	commitAll(t, d, rows(at(1), 2, 5)) // read again
	if n := h.text(t, "SELECT count(*)::text || count(DISTINCT _openetl_id)::text FROM orders"); n != "55" {
		t.Errorf("%s rows and records, want 5 and 5", n)
	}
}
