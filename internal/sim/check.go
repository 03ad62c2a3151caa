package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/desttest"
)

// check compares what the table holds with what was put.
func (w *world) check() []string {
	table := w.memory.Read(tableName)
	var wrong []string
	seen := map[int]string{}
	last := map[string]int{}
	note := func(id int, as string) {
		if before, twice := seen[id]; twice {
			wrong = append(wrong, fmt.Sprintf("record %d is a %s and again a %s", id, before, as))
		}
		seen[id] = as
	}
	for _, r := range table.Rows {
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
	byPayload := map[string]int{}
	for id, p := range w.sent.payloads {
		byPayload[p] = id
	}
	for _, d := range table.DeadLetters {
		id, ok := byPayload[string(d.Payload)]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("dead letter %q was never put", d.Payload))
			continue
		}
		note(id, "dead letter")
		if w.changes == kinetl.Allow && json.Valid(d.Payload) {
			wrong = append(wrong, fmt.Sprintf("record %d is a dead letter but decodable: %s", id, d.Reason))
		}
	}
	for id, payload := range w.sent.payloads {
		switch as, ok := seen[id]; {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("record %d is lost", id))
		case as == "row" && !json.Valid([]byte(payload)):
			wrong = append(wrong, fmt.Sprintf("record %d is undecodable but a row", id))
		}
	}
	return append(wrong, w.checkValues(table)...)
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
		_ = builder.EndRow(&kinetl.Record{Sequence: "1"}, shardID(0))
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
