package desttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/kinetl/kinetl"
)

var deleteCases = []testCase{
	{"R14 a move that deletes takes the rows and dead letters from a record on", deletesFrom},
	{"R14 inside an aggregate", func(s *suite) {
		for _, mode := range []kinetl.MetadataMode{kinetl.MetadataColumns, kinetl.MetadataObject} {
			s.table = fmt.Sprintf("orders%d", mode)
			d := s.deleter()
			schema := kinetl.MetadataSchema(mode)
			s.prepare(d, schema, kinetl.Refuse)
			s.start(d, shard0)
			s.stored(d, placed(shard0, kinetl.Oldest, schema, "7", "8", "8.1", "8.2", "8.3", "9"))
			s.delete(d, kinetl.Deleted{Rows: 3}, kinetl.Move{Shard: shard0, From: at(9), To: kinetl.At("8", 1), Again: kinetl.At("8", 2)})
			s.wantPlaces(schema, shard0, "7", "8", "8.1")
			s.wantWatermark(shard0, kinetl.At("8", 1))
		}
	}},
	{"R14 rows of other streams with such a shard stay", deletesOneStream},
	{"R14 rows that do not tell their record are not deleted", func(s *suite) {
		d := s.deleter()
		s.prepare(d, letters, kinetl.Refuse)
		s.start(d, shard0)
		s.stored(d, part(shard0, kinetl.Oldest, at(2), letters, 1, people(1, 2, "a")...))
		move := kinetl.Move{Shard: shard0, From: at(2), To: kinetl.Oldest, Again: at(1)}
		s.wantUndeletable(d, move)
		// The columns came later: older rows do not have them.
		schema := s.prepare(d, kinetl.MetadataSchema(kinetl.MetadataColumns), kinetl.Refuse)
		s.stored(d, placed(shard0, at(2), kinetl.MetadataSchema(kinetl.MetadataColumns), "3"))
		move.From = at(3)
		if s.isMemory(d) {
			return // it knows them all the same
		}
		s.wantUndeletable(d, move)
		if n := len(s.Read(s.T, s.table, schema).Rows); n != 3 {
			s.Fatalf("%d rows left, want 3", n)
		}
	}},
	{"R14 a table that is not there yet has nothing to delete", func(s *suite) {
		d := s.deleter()
		s.claim(d, kinetl.Claim{Shard: shard0, Start: at(5)})
		s.delete(d, kinetl.Deleted{}, kinetl.Move{Shard: shard0, From: at(5), To: at(2), Again: at(3)})
	}},
	{"R10 each statement of a move that deletes fails in turn", func(s *suite) {
		s.need(s.FailStatement != nil, "make a statement fail")
		d := s.deleter()
		schema := kinetl.MetadataSchema(kinetl.MetadataColumns)
		s.prepare(d, schema, kinetl.Refuse)
		s.start(d, shard0, shard1)
		p := placed(shard0, kinetl.Oldest, schema, "1", "2")
		p.DeadLetters = []kinetl.DeadLetter{{Sequence: "2", Sub: 1, Reason: "x", Payload: []byte("x"), At: time.Unix(1, 0), Arrived: time.Unix(1, 0)}}
		s.stored(d, p, placed(shard1, kinetl.Oldest, schema, "1", "2"))
		s.failEach(d, func(ctx context.Context) error {
			_, err := d.MoveAndDelete(ctx, s.table, []kinetl.Move{
				{Shard: shard0, From: at(2), To: at(1), Again: at(2)}, {Shard: shard1, From: at(2), To: at(1), Again: at(2)},
			}, "again", false)
			return err
		})
		s.wantPlaces(schema, shard0, "1")
		s.wantPlaces(schema, shard1, "1")
	}},
}

// long is a sequence number as Kinesis gives them; it has more digits than any integer
// type, and as text comes before "9".
const long = "49645023519213158926357843190829123456789012345678901234"

func deletesFrom(s *suite) {
	d := s.deleter()
	schema := kinetl.MetadataSchema(kinetl.MetadataColumns)
	s.prepare(d, schema, kinetl.Refuse)
	s.start(d, shard0, shard1)
	p := placed(shard0, kinetl.Oldest, schema, "9", "10", "100", long)
	for _, place := range []string{"8", "10", "99", long} {
		for sub := range uint64(2) {
			p.DeadLetters = append(p.DeadLetters, kinetl.DeadLetter{Sequence: place, Sub: sub + 1, Reason: "x"})
		}
	}
	q := placed(shard1, kinetl.Oldest, schema, "9", "10", "100", long)
	s.stored(d, p, q)
	back := kinetl.Move{Shard: shard0, From: kinetl.At(long, 0), To: at(9), Again: kinetl.At("10", 0)}

	// A rehearsal, and a move that comes too late, change nothing.
	before := s.Read(s.T, s.table, schema)
	got, err := d.MoveAndDelete(context.Background(), s.table, []kinetl.Move{back}, "again", true)
	if want := (kinetl.Deleted{Rows: 3, DeadLetters: 6}); err != nil || got[shard0] != want {
		s.Fatalf("rehearsed %+v (%v), want %+v", got, err, want)
	}
	late := back
	late.From = at(5)
	var moved *kinetl.MovedError
	if _, err := d.MoveAndDelete(context.Background(), s.table, []kinetl.Move{late}, "again", false); !errors.As(err, &moved) {
		s.Fatalf("move from where the watermark is not: %v, want *MovedError", err)
	}
	if after := s.Read(s.T, s.table, schema); !reflect.DeepEqual(after, before) {
		s.Fatalf("left %+v, want %+v", after, before)
	}

	// A shard that is moved and of which nothing is read again keeps its rows.
	s.delete(d, kinetl.Deleted{Rows: 3, DeadLetters: 6}, back, kinetl.Move{Shard: shard1, From: kinetl.At(long, 0), To: at(5)})
	s.wantPlaces(schema, shard0, "9")
	s.wantPlaces(schema, shard1, "9", "10", "100", long)
	left := s.Read(s.T, s.table, schema)
	if len(left.DeadLetters) != 2 || left.DeadLetters[0].Sequence != "8" {
		s.Fatalf("dead letters %+v left, want those of 8", left.DeadLetters)
	}
	if len(left.Gaps) != 2 || left.Gaps[0].Reason != "again" {
		s.Fatalf("gaps %+v, want both moves", left.Gaps)
	}
	s.wantWatermark(shard0, at(9))
	s.stored(d, placed(shard0, at(9), schema, "10", "100", long)) // read again
	s.wantPlaces(schema, shard0, "9", "10", "100", long)

	// Dead letters inside an aggregate.
	p = placed(shard0, kinetl.At(long, 0), schema)
	p.Through, p.DeadLetters = kinetl.At(long, 2), []kinetl.DeadLetter{{Sequence: long, Sub: 1, Reason: "x"}, {Sequence: long, Sub: 2, Reason: "x"}}
	s.stored(d, p)
	s.delete(d, kinetl.Deleted{DeadLetters: 1}, kinetl.Move{Shard: shard0, From: kinetl.At(long, 2), To: kinetl.At(long, 1), Again: kinetl.At(long, 2)})
}

// deletesOneStream: two streams in one table, and one that was created anew, each have a
// shard of the same id, with records of the same sequence numbers.
func deletesOneStream(s *suite) {
	other, anew := shard0, shard0
	other.Stream = strings.Replace(streamARN, "stream/orders", "stream/returns", 1)
	anew.Created++
	for _, mode := range []kinetl.MetadataMode{kinetl.MetadataColumns, kinetl.MetadataColumnsStream, kinetl.MetadataObject} {
		s.table = fmt.Sprintf("orders%d", mode)
		d := s.deleter()
		schema := kinetl.MetadataSchema(mode)
		s.prepare(d, schema, kinetl.Refuse)
		s.start(d, shard0, other, anew)
		for _, shard := range []kinetl.ShardID{shard0, other, anew} {
			s.stored(d, placed(shard, kinetl.Oldest, schema, "1", "2", "3"))
		}
		s.delete(d, kinetl.Deleted{Rows: 2}, kinetl.Move{Shard: anew, From: at(3), To: at(1), Again: at(2)})
		s.wantPlaces(schema, anew, "1")
		s.wantPlaces(schema, shard0, "1", "2", "3")
		s.delete(d, kinetl.Deleted{Rows: 3}, kinetl.Move{Shard: other, From: at(3), To: kinetl.Oldest, Again: at(1)})
		s.wantPlaces(schema, other)
		s.wantPlaces(schema, shard0, "1", "2", "3")

		// What is left of an aggregate tells its stream only where a column does.
		s.stored(d, placed(shard0, at(3), schema, "4", "4.1"))
		move := kinetl.Move{Shard: shard0, From: kinetl.At("4", 1), To: at(3), Again: kinetl.At("4", 0)}
		if mode == kinetl.MetadataObject || s.isMemory(d) {
			s.delete(d, kinetl.Deleted{Rows: 2}, move)
			continue
		}
		s.wantUndeletable(d, move)
		s.wantWatermark(shard0, kinetl.At("4", 1))
		s.wantPlaces(schema, shard0, "1", "2", "3", "4", "4.1")
	}
	// Streams of different names are told apart by the column, aggregates or not.
	s.table = "orders"
	d := s.deleter()
	schema := kinetl.MetadataSchema(kinetl.MetadataColumnsStream)
	s.prepare(d, schema, kinetl.Refuse)
	s.start(d, shard0, other)
	s.stored(d, placed(shard0, kinetl.Oldest, schema, "1", "1.1"), placed(other, kinetl.Oldest, schema, "1", "1.1"))
	s.delete(d, kinetl.Deleted{Rows: 1}, kinetl.Move{Shard: other, From: kinetl.At("1", 1), To: at(1), Again: kinetl.At("1", 1)})
	s.wantPlaces(schema, other, "1")
	s.wantPlaces(schema, shard0, "1", "1.1")
}

func (s *suite) deleter() kinetl.RowDeleter {
	s.Helper()
	d, ok := s.worker().(kinetl.RowDeleter)
	if !ok {
		s.Skip("the destination deletes no rows")
	}
	return d
}

func (s *suite) isMemory(d kinetl.Destination) bool {
	_, ok := d.(*Memory)
	return ok
}

// delete moves, and expects what is deleted of the first shard, and of no other.
func (s *suite) delete(d kinetl.RowDeleter, want kinetl.Deleted, moves ...kinetl.Move) {
	s.Helper()
	got, err := d.MoveAndDelete(context.Background(), s.table, moves, "again", false)
	if err != nil {
		s.Fatalf("move and delete: %v", err)
	}
	maps.DeleteFunc(got, func(_ kinetl.ShardID, n kinetl.Deleted) bool { return n == kinetl.Deleted{} })
	if got[moves[0].Shard] != want || len(got) > 1 {
		s.Fatalf("deleted %+v, want %+v of %s", got, want, moves[0].Shard)
	}
}

func (s *suite) wantUndeletable(d kinetl.RowDeleter, move kinetl.Move) {
	s.Helper()
	_, err := d.MoveAndDelete(context.Background(), s.table, []kinetl.Move{move}, "again", false)
	var undeletable *kinetl.UndeletableError
	if !errors.As(err, &undeletable) {
		s.Fatalf("move and delete: %v, want *UndeletableError", err)
	}
	s.wantWatermark(move.Shard, move.From)
}

// placed is rows that hold nothing but their records' places, "SEQUENCE" or
// "SEQUENCE.SUB".
func placed(shard kinetl.ShardID, after kinetl.Position, schema kinetl.Schema, places ...string) kinetl.Part {
	var rows []cells
	var ids []kinetl.RowID
	for _, place := range places {
		sequence, text, _ := strings.Cut(place, ".")
		sub, _ := strconv.ParseUint(text, 10, 64)
		ids = append(ids, kinetl.RowID{Sequence: sequence, Sub: sub})
		rows = append(rows, cells{
			kinetl.StreamColumn: shard.StreamName(), kinetl.ShardColumn: shard.Shard, kinetl.SequenceColumn: sequence,
			kinetl.IDColumn: kinetl.RecordID(shard, sequence, sub),
			kinetl.ObjectColumn: fmt.Sprintf(`{"stream":%q,"shardId":%q,"approximateArrival":null,"partitionKey":null,"sequenceNumber":%q,"subSequenceNumber":%d,"shardedSequenceNumber":null}`,
				shard.StreamName(), shard.Shard, sequence, sub),
		})
	}
	p := part(shard, after, after, schema, 0, rows...)
	p.RowIDs = ids
	if len(ids) > 0 {
		p.Through = ids[len(ids)-1].Position()
	}
	return p
}

// wantPlaces compares the shard's rows, which are known by their ids.
func (s *suite) wantPlaces(schema kinetl.Schema, shard kinetl.ShardID, places ...string) {
	s.Helper()
	want := map[string]bool{}
	for _, place := range places {
		sequence, text, _ := strings.Cut(place, ".")
		sub, _ := strconv.ParseUint(text, 10, 64)
		want[kinetl.RecordID(shard, sequence, sub)] = true
	}
	rows := s.Read(s.T, s.table, schema).Rows
	for _, sequence := range []string{"1", "2", "3", "4", "7", "8", "9", "10", "100", long} {
		for sub := range uint64(4) {
			id := kinetl.RecordID(shard, sequence, sub)
			n := 0
			for _, row := range rows {
				if row.Cells[kinetl.IDColumn] == id {
					n++
				}
			}
			if wanted := want[id]; n > 1 || wanted != (n == 1) {
				s.Fatalf("%s: record %s.%d is in %d rows, want it there: %t", shard, sequence, sub, n, wanted)
			}
		}
	}
}
