package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/desttest"
)

// read is what all tables hold.
func (w *world) read() (tables []desttest.Contents) {
	for _, st := range w.streams {
		tables = append(tables, w.memory.Read(st.name))
	}
	return tables
}

// checkOnce is called when a run with Once ended: the first n records were put
// before it began, and must be stored, but for those of shards that KCL's workers read
// (R25).
func (w *world) checkOnce(n int, began time.Time) {
	left := w.leftToKCL(began)
	stored := map[string]bool{}
	for _, table := range w.read() {
		for _, r := range table.Rows {
			stored[r.Cells["id"]] = true
		}
		for _, d := range table.DeadLetters {
			stored[idOf(d.Payload)] = true
		}
	}
	for id := range n {
		if id := strconv.Itoa(id); !stored[id] && !w.wasReadByKCL(id) && !left[id] {
			w.report("R25: a run with Once ended without record %s", id)
		}
	}
}

// idOf is the id in a payload, decodable or not.
func idOf(payload []byte) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(string(payload), `{"id":`), ",")
	return id
}

// check compares what the tables hold with what was put.
func (w *world) check() []string {
	var wrong []string
	seen := map[int]string{}
	last := map[string]int{}
	note := func(id int, as string) {
		if before, twice := seen[id]; twice {
			wrong = append(wrong, fmt.Sprintf("record %d is a %s and again a %s", id, before, as))
		}
		seen[id] = as
	}
	tables := w.read()
	for _, r := range rowsOf(tables) {
		id, err1 := strconv.Atoi(r.Cells["id"])
		n, err2 := strconv.Atoi(r.Cells["n"])
		if err1 != nil || err2 != nil {
			wrong = append(wrong, fmt.Sprintf("a row without id: %v", r.Cells))
			continue
		}
		note(id, "row")
		key := r.Cells["k"]
		if before, ok := last[key]; ok && n <= before {
			wrong = append(wrong, fmt.Sprintf("R30: record %d of %s is stored after record %d", n, key, before))
		}
		last[key] = n
	}
	for _, d := range deadLettersOf(tables) {
		id, err := strconv.Atoi(idOf(d.Payload))
		if err != nil || id >= len(w.sent.payloads) || w.sent.payloads[id] != string(d.Payload) {
			wrong = append(wrong, fmt.Sprintf("dead letter %q was never put", d.Payload))
			continue
		}
		note(id, "dead letter")
		if w.changes == kinetl.Allow && json.Valid(d.Payload) && !isRefused(id) {
			wrong = append(wrong, fmt.Sprintf("record %d is a dead letter but decodable: %s", id, d.Reason))
		}
	}
	for id, payload := range w.sent.payloads {
		switch as, ok := seen[id]; {
		case !ok && w.wasReadByKCL(strconv.Itoa(id)): // at least once: it went where KCL's worker sends it
		case !ok:
			wrong = append(wrong, fmt.Sprintf("record %d is lost", id))
		case as == "row" && !json.Valid([]byte(payload)):
			wrong = append(wrong, fmt.Sprintf("record %d is undecodable but a row", id))
		case as == "row" && isRefused(id):
			wrong = append(wrong, fmt.Sprintf("R13: record %d was refused but is a row", id))
		}
	}
	for _, table := range tables {
		wrong = append(wrong, w.checkValues(table)...)
	}
	return wrong
}

func rowsOf(tables []desttest.Contents) (out []desttest.Row) {
	for _, t := range tables {
		out = append(out, t.Rows...)
	}
	return out
}

func deadLettersOf(tables []desttest.Contents) (out []desttest.DeadLetter) {
	for _, t := range tables {
		out = append(out, t.DeadLetters...)
	}
	return out
}

// checkValues decodes every row's payload anew for the table's final schema: what
// is stored must be the same, however its column widened meanwhile.
func (w *world) checkValues(table desttest.Contents) []string {
	var wrong []string
	decoder := codec.NewJSON()
	builder := kinetl.NewBuilder(table.Schema, w.changes, kinetl.MetadataNone)
	for _, r := range table.Rows {
		id, err := strconv.Atoi(r.Cells["id"])
		if err != nil || id >= len(w.sent.payloads) || !json.Valid([]byte(w.sent.payloads[id])) {
			continue
		}
		builder.Reset(table.Schema)
		if err := decoder.Decode([]byte(w.sent.payloads[id]), builder); err != nil {
			wrong = append(wrong, fmt.Sprintf("record %d is a row but does not decode: %v", id, err))
			continue
		}
		_ = builder.EndRow(&kinetl.Record{Sequence: "1"}, kinetl.ShardID{})
		rows, schema, ids := builder.Seal()
		rows, schema, err = kinetl.Conform(rows, schema, table.Schema)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("record %d does not fit the table: %v", id, err))
			continue
		}
		want := desttest.RowsOf(kinetl.Part{Rows: rows, Schema: schema, RowIDs: ids}, table.Schema)[0].Cells
		have := maps.Clone(r.Cells)
		for name := range have {
			if name[0] == '_' {
				delete(have, name)
			}
		}
		if !maps.Equal(want, have) {
			wrong = append(wrong, fmt.Sprintf("record %d is stored as %v, not %v", id, have, want))
		}
	}
	return wrong
}
