package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
)

const ordersARN = "arn:aws:kinesis:eu-west-1:111122223333:stream/orders"

// family is a listing of shards a to z, each said as "c<a+b closed". Sequence numbers
// of each go from 100.
func family(shards ...string) Listing {
	l := Listing{At: written}
	const group = "111122223333:orders:1700000000:"
	for _, text := range shards {
		id, closed := strings.CutSuffix(text, " closed")
		id, parents, _ := strings.Cut(id, "<")
		s := Shard{Shard: lease.Shard{Key: group + id, Group: group, ID: id}, ARN: ordersARN, Closed: closed, First: "100"}
		if parents != "" {
			s.Parents = strings.Split(parents, "+")
		}
		if closed {
			s.Last = "999"
		}
		l.Shards = append(l.Shards, s)
	}
	return l
}

// chain is a family that goes round in a circle, as a service would never list it.
func chain(stream string) Listing {
	l := family("a<c", "b<a closed", "c<b", "d<x")
	for i := range l.Shards {
		l.Shards[i].ARN = stream
	}
	return l
}

var (
	earliest = lease.Start{Checkpoint: lease.TrimHorizon}
	latest   = lease.Start{Checkpoint: lease.Latest}
	since    = lease.Start{Checkpoint: lease.AtTimestamp, Instant: written.Add(-time.Hour)}
)

func TestMap(t *testing.T) {
	row := func(shard, checkpoint string) Row {
		r := Row{Stream: "orders", Shard: shard, Checkpoint: checkpoint, Wrote: written.Add(-10 * time.Minute)}
		if checkpoint != "" && !isWord(checkpoint) {
			r.Sub = Whole
		}
		return r
	}
	split := family("a closed", "b<a", "c<a")
	for _, x := range []struct {
		name    string
		from    string
		listing Listing
		start   lease.Start
		rows    []Row
		want    string // leases in order, left out, faults
	}{
		{"a row each", "openflow", family("a", "b"), earliest, []Row{row("a", "150"), row("b", "200")}, "a 150 whole, b 200 whole"},
		{"a version with sub-sequence numbers", "openflow", family("a"), earliest,
			[]Row{{Stream: "orders", Shard: "a", Checkpoint: "150", Sub: 3}}, "a 150.3"},
		{"a shard that nobody has seen is left to the start", "openflow", family("a", "b"), latest, []Row{row("a", "150")}, "a 150 whole"},
		{"a child that nobody has seen begins at its beginning, also at latest", "openflow", split, latest, []Row{row("a", "150"), row("b", "200")},
			"a 150 whole, b 200 whole, c TRIM_HORIZON"},
		{"so does one whose parent has left", "openflow", family("b<a", "c<a"), latest, []Row{row("a", "150"), row("b", "200")},
			"b 200 whole, c TRIM_HORIZON; left out a"},
		{"and one that was seen and not read", "openflow", split, latest, []Row{row("a", "150"), row("b", "")},
			"a 150 whole, b TRIM_HORIZON, c TRIM_HORIZON"},
		{"a parent without a row was not read, although its child was", "openflow", split, earliest, []Row{row("b", "200")},
			"a TRIM_HORIZON, b 200 whole, c TRIM_HORIZON"},
		{"and begins where the application starts", "openflow", split, since, []Row{row("b", "200")},
			"a AT_TIMESTAMP 11:00:00, b 200 whole, c TRIM_HORIZON"},
		{"latest, seen and not read: from a minute before it was seen last", "openflow", family("a"), latest, []Row{row("a", "")}, "a LATEST 11:49:00"},
		{"latest, and nobody knows when it was seen", "openflow", family("a"), latest, []Row{{Stream: "orders", Shard: "a"}}, "a LATEST 12:00:00"},
		{"words", "openflow", family("a closed", "b"), earliest, []Row{row("a", "SHARD_END"), row("b", "TRIM_HORIZON")}, "a SHARD_END, b TRIM_HORIZON"},
		{"a time that the pipeline knows", "openflow", family("a"), since, []Row{row("a", "AT_TIMESTAMP")}, "a AT_TIMESTAMP 11:00:00"},
		{"a time that nobody knows", "openflow", family("a"), earliest, []Row{row("a", "AT_TIMESTAMP")}, "fault orders a"},
		{"finished, and open", "openflow", family("a"), earliest, []Row{row("a", "SHARD_END")}, "fault orders a"},
		{"before the shard", "openflow", family("a"), earliest, []Row{row("a", "99")}, "fault orders a"},
		{"behind the shard", "openflow", family("a closed"), earliest, []Row{row("a", "1000")}, "fault orders a"},
		{"longer numbers are larger", "openflow", family("a"), earliest, []Row{row("a", "1000")}, "a 1000 whole"},
		{"a shard that is still to come", "openflow", family("a"), earliest, []Row{row("b", "150")}, "fault orders b"},
		{"another stream", "openflow", family("a"), earliest, []Row{row("a", "150"), {Stream: "payments", Shard: "a"}}, "a 150 whole; left out payments a"},
		{"by ARN and by name", "bento", family("a"), earliest, []Row{row("a", "150"), {Stream: ordersARN, Shard: "a", Checkpoint: "160"}}, "fault " + ordersARN + " a"},
		{"by ARN of any region", "bento", family("a"), earliest, []Row{{Stream: "arn:aws:kinesis:*:111122223333:stream/orders", Shard: "a", Checkpoint: "160", Sub: Whole}}, "a 160 whole"},
		{"by ARN of another account", "bento", family("a"), earliest, []Row{{Stream: "arn:aws:kinesis:*:999922223333:stream/orders", Shard: "a"}}, "left out arn:aws:kinesis:*:999922223333:stream/orders a"},
		{"rows of finished shards are deleted", "bento", family("a closed", "b<a", "c<a"), earliest, []Row{row("b", "200")},
			"a SHARD_END, b 200 whole, c TRIM_HORIZON"},
		{"a closed shard that came after the last row", "bento", family("a closed", "b<a closed", "c<b"), earliest, []Row{row("a", "150")},
			"a 150 whole, b TRIM_HORIZON, c TRIM_HORIZON"},
		{"closed, between rows", "bento", family("a closed", "b<a closed", "c<b"), earliest, []Row{row("a", "150"), row("c", "200")}, "fault " + ordersARN + " b"},
		{"closed, without relatives", "bento", family("a", "b closed"), earliest, []Row{row("a", "150")}, "fault " + ordersARN + " b"},
		{"a stream without any row is left to the start", "bento", family("a", "b closed"), earliest, []Row{{Stream: "payments", Shard: "a"}}, "left out payments a"},
		{"no stream is said", "vmware-go-kcl", split, earliest, []Row{{Shard: "a", Checkpoint: lease.ShardEnd}, {Shard: "b", Checkpoint: "200", Sub: Whole}},
			"a SHARD_END, b 200 whole, c TRIM_HORIZON"},
	} {
		got := Map(Layouts()[x.from], x.rows, x.listing, x.start)
		if said := say(got); said != x.want {
			t.Errorf("%s: %s\nwant %s", x.name, said, x.want)
		}
		for _, l := range got.Leases {
			if l.Owner != "" || l.Counter != 0 || !l.Created.Equal(x.listing.At) {
				t.Errorf("%s: lease %+v", x.name, l)
			}
		}
	}
}

// Ancestors come first: a reader of half of them must find no child without its parent (R17).
func TestAncestorsFirst(t *testing.T) {
	listing := family("a<z closed", "b<a", "z closed")
	got := Map(Layouts()["openflow"], []Row{{Stream: "orders", Shard: "b", Checkpoint: "200"}}, listing, earliest)
	if said := say(got); said != "z TRIM_HORIZON, a TRIM_HORIZON, b 200" {
		t.Error(said)
	}
}

// A row that could be of two streams of one name is a fault.
func TestStreamsOfOneName(t *testing.T) {
	listing := family("a")
	other := listing.Shards[0]
	other.ARN, other.Group, other.Key = "arn:aws:kinesis:eu-west-1:999922223333:stream/orders", "999922223333:orders:1700000000:", "999922223333:orders:1700000000:a"
	listing.Shards = append(listing.Shards, other)
	if said := say(Map(Layouts()["openflow"], []Row{{Stream: "orders", Shard: "a", Checkpoint: "150"}}, listing, earliest)); said != "fault orders a" {
		t.Error(said)
	}
}

// A table whose keys are bare shard ids gets such leases, which name their stream.
func TestShortKeys(t *testing.T) {
	listing := family("a")
	s := &listing.Shards[0]
	s.Key, s.Group, s.Stream = "a", "", lease.StreamID(ordersARN, 1700000000)
	got := Map(Layouts()["openflow"], []Row{{Stream: "orders", Shard: "a", Checkpoint: "150"}}, listing, earliest)
	if len(got.Leases) != 1 || got.Leases[0].Key != "a" || got.Leases[0].Stream != s.Stream {
		t.Errorf("%+v", got)
	}
}

// say is a mapping in short.
func say(m Mapping) string {
	var leases, parts []string
	for _, l := range m.Leases {
		text := l.Key[strings.LastIndexByte(l.Key, ':')+1:] + " " + l.Checkpoint
		switch {
		case l.Sub == Whole:
			text += " whole"
		case l.Sub > 0:
			text += fmt.Sprintf(".%d", l.Sub)
		case !l.Start.IsZero():
			text += " " + l.Start.Format(time.TimeOnly)
		}
		leases = append(leases, text)
	}
	if len(m.Faults) == 0 && len(leases) > 0 {
		parts = append(parts, strings.Join(leases, ", "))
	}
	for _, f := range slices.Concat(m.LeftOut, m.Foreign) {
		parts = append(parts, "left out "+strings.TrimPrefix(f.Row, "orders "))
	}
	for _, f := range m.Faults {
		parts = append(parts, "fault "+f.Row)
	}
	slices.Sort(parts[min(1, len(parts)):])
	return strings.Join(parts, "; ")
}
