package kinesis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

func names(l kinetl.Listing) []string {
	var out []string
	for _, s := range l.Shards {
		if n := s.ID.StreamName(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// Streams are those named, or all that can be listed; a pattern filters either by
// the whole name, and what newly matches is found within a minute.
func TestStreamDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{})
		for i := range 120 { // more than a page of ListStreams
			check(t, srv.CreateStream(fmt.Sprintf("orders-%03d", i), 1))
		}
		check(t, srv.CreateStream("other", 1))
		c := client(srv.Transport())

		named := NewSource(Options{Client: c, Streams: []string{"other", srv.StreamARN("orders-007")}})
		if got := names(must(named.Shards(t.Context(), time.Time{}))); !slices.Equal(got, []string{"orders-007", "other"}) {
			t.Errorf("named: %q", got)
		}
		if n := srv.Count("ListStreams"); n != 0 {
			t.Errorf("ListStreams was called %d times although streams are named", n)
		}
		matching := NewSource(Options{Client: c, Pattern: regexp.MustCompile(`orders-0.|orders-00\d`)})
		if got := names(must(matching.Shards(t.Context(), time.Time{}))); len(got) != 10 {
			t.Errorf("matching the whole name: %q", got)
		}
		all := NewSource(Options{Client: c})
		if got := names(must(all.Shards(t.Context(), time.Time{}))); len(got) != 121 {
			t.Errorf("all: %d streams", len(got))
		}
		check(t, srv.CreateStream("late", 1))
		time.Sleep(time.Minute)
		if got := names(must(all.Shards(t.Context(), time.Time{}))); !slices.Contains(got, "late") {
			t.Error("a new stream was not found within a minute")
		}
		_, err := NewSource(Options{Client: c, Streams: []string{"missing"}}).Shards(t.Context(), time.Time{})
		if err == nil || !strings.Contains(err.Error(), "missing") {
			t.Errorf("a stream that does not exist: %v", err)
		}
	})
}

// R19: the instant of a listing is the service's clock, not this host's.
func TestListingCarriesTheServiceClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Now().Add(90 * time.Minute)
		srv := kinesistest.New(kinesistest.Options{Now: func() time.Time { return ahead }})
		check(t, srv.CreateStream("s", 1))
		l := must(NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}}).Shards(t.Context(), time.Time{}))
		if d := l.At.Sub(ahead); d < -time.Second || d > time.Second {
			t.Errorf("listing at %s, the service's clock says %s", l.At, ahead)
		}
	})
}

// More shards than a page holds are all listed, and the pages are asked for by the
// token alone.
func TestManyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kinesistest.New(kinesistest.Options{NoLimits: true})
		check(t, srv.CreateStream("s", 2500))
		s := NewSource(Options{Client: client(srv.Transport()), Streams: []string{"s"}})
		shards := must(s.Shards(t.Context(), time.Time{})).Shards
		if len(shards) != 2500 {
			t.Fatalf("listed %d of 2500 shards", len(shards))
		}
		if first, last := shards[0].StartingHashKey, shards[2499].EndingHashKey; first != "0" || last != "340282366920938463463374607431768211455" {
			t.Errorf("they cover hash keys %s to %s", first, last)
		}
	})
}

// A start at an instant lists the shards that were open then, and only those.
func TestShardsOpenAt(t *testing.T) {
	in(t, kinesistest.Options{}, func(t *testing.T, srv *kinesistest.Server, s *Source) {
		check(t, srv.CreateStream("s", 1))
		time.Sleep(time.Hour)
		before := time.Now()
		time.Sleep(time.Hour)
		must(srv.Split("s", shard0))
		time.Sleep(time.Hour)
		for name, c := range map[string]struct {
			at   time.Time
			want int
		}{"before the split": {before, 1}, "after it": {time.Now(), 2}, "all": {time.Time{}, 3}} {
			if got := len(must(s.Shards(t.Context(), c.at)).Shards); got != c.want {
				t.Errorf("%s: %d shards, want %d", name, got, c.want)
			}
		}
	})
}
