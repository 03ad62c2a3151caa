package kinesis

import (
	"bytes"
	"crypto/md5"
	"slices"
	"testing"

	"github.com/kinetl/kinetl"
)

func aggregate(message []byte) []byte {
	sum := md5.Sum(message)
	return slices.Concat(aggregateMagic, message, sum[:])
}

// A malformed aggregate goes on as one plain record, whatever is wrong with it and
// wherever the fault is.
func TestMalformedAggregateIsAPlainRecord(t *testing.T) {
	good := Aggregate([]AggregateRecord{{"a", []byte("1")}, {"b", []byte("2")}})
	message := good[4 : len(good)-md5.Size]
	for name, data := range map[string][]byte{
		"magic only":               aggregateMagic,
		"empty message":            aggregate(nil),
		"wrong checksum":           append(slices.Clone(good[:len(good)-1]), good[len(good)-1]^1),
		"cut message":              aggregate(message[:len(message)-1]),
		"key index out of range":   aggregate([]byte{0x0a, 1, 'a', 0x1a, 5, 0x08, 7, 0x1a, 1, 'x'}),
		"record without data":      aggregate([]byte{0x0a, 1, 'a', 0x1a, 2, 0x08, 0}),
		"record without key":       aggregate([]byte{0x0a, 1, 'a', 0x1a, 3, 0x1a, 1, 'x'}),
		"second record is garbage": aggregate(append(slices.Clone(message), 0x1a, 1, 0xff)),
		"not an aggregate":         []byte(`{"a":1}`),
		"empty":                    {},
		"keys but no records":      aggregate([]byte{0x0a, 1, 'a'}),
	} {
		outer := kinetl.Record{Sequence: "7", PartitionKey: "outer", Data: data}
		got := unpack(nil, outer)
		if len(got) != 1 || got[0].PartitionKey != "outer" || !bytes.Equal(got[0].Data, data) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if got := unpack(nil, kinetl.Record{Data: good}); len(got) != 2 || string(got[1].Data) != "2" || got[1].Sub != 1 {
		t.Errorf("a good one: %+v", got)
	}
	extra := aggregate(append(slices.Clone(message), 0x48, 1)) // an unknown field
	if got := unpack(nil, kinetl.Record{Data: extra}); len(got) != 2 {
		t.Errorf("with an unknown field: %+v", got)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(Aggregate([]AggregateRecord{{"a", []byte("1")}, {"b", []byte("2")}})[4:])
	f.Add([]byte{0x0a, 1, 'a', 0x1a, 5, 0x08, 0, 0x1a, 1, 'x'})
	f.Fuzz(func(t *testing.T, message []byte) {
		first := kinetl.Record{Sequence: "6"}
		got := unpack([]kinetl.Record{first}, kinetl.Record{Sequence: "7", PartitionKey: "outer", Data: aggregate(message)})
		if len(got) < 2 || got[0].Sequence != "6" {
			t.Fatalf("got %+v", got)
		}
		for i, r := range got[1:] {
			if r.Sub != uint64(i) || r.Sequence != "7" {
				t.Errorf("record %d: %+v", i, r)
			}
		}
	})
}

// BenchmarkUnpack is an aggregate of the size that the producer library makes, with
// its digest, and the digest alone: what is left is the unpacking.
func BenchmarkUnpack(b *testing.B) {
	var records []AggregateRecord
	for range 200 {
		records = append(records, AggregateRecord{"customer-1", bytes.Repeat([]byte("x"), 256)})
	}
	data := Aggregate(records)
	message := data[4 : len(data)-md5.Size]
	var dst []kinetl.Record
	for name, f := range map[string]func(){
		"all":    func() { dst = unpack(dst[:0], kinetl.Record{Data: data}) },
		"digest": func() { _ = md5.Sum(message) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(records)), "ns/record")
		})
	}
}
