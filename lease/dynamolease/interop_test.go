package dynamolease

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

const (
	at1 = "49590338271490256608559692538361571095921575989136588898"
	at2 = "49590338271490256608559692540925702759324208523137515618"
)

// kclRows are leases as each generation of KCL leaves them behind. Source: the
// serializers of KCL 1.15, 2.7 and 3.5.
var kclRows = map[string]item{
	"KCL 1": {
		"leaseKey": text("shardId-000000000001"), "leaseOwner": text("kcl-1"), "leaseCounter": number("41"),
		"checkpoint": text(at1), "checkpointSubSequenceNumber": number("0"), "ownerSwitchesSinceCheckpoint": number("2"),
		"parentShardId":     set("shardId-000000000000"),
		"pendingCheckpoint": text(at2), "pendingCheckpointSubSequenceNumber": number("3"),
	},
	"KCL 2": {
		"leaseKey": text("shardId-000000000001"), "leaseOwner": text("kcl-1"), "leaseCounter": number("41"),
		"checkpoint": text(at1), "checkpointSubSequenceNumber": number("7"), "ownerSwitchesSinceCheckpoint": number("0"),
		"parentShardId":   set("shardId-000000000000", "shardId-000000000009"),
		"startingHashKey": text("0"), "endingHashKey": text("170141183460469231731687303715884105727"),
		"pendingCheckpoint": text(at2), "pendingCheckpointSubSequenceNumber": number("3"), "pendingCheckpointState": bytesOf(0xca, 0xfe),
	},
	"KCL 2 with several streams": {
		"leaseKey": text("111122223333:orders:1700000000:shardId-000000000001"), "leaseOwner": text("kcl-1"), "leaseCounter": number("41"),
		"checkpoint": text("TRIM_HORIZON"), "checkpointSubSequenceNumber": number("0"), "ownerSwitchesSinceCheckpoint": number("0"),
		"startingHashKey": text("0"), "endingHashKey": text("170141183460469231731687303715884105727"),
		"streamName": text("111122223333:orders:1700000000"), "shardId": text("shardId-000000000001"),
	},
	"KCL 3": {
		"leaseKey": text("shardId-000000000001"), "leaseOwner": text("kcl-1"), "leaseCounter": number("41"),
		"checkpoint": text(at1), "checkpointSubSequenceNumber": number("0"), "ownerSwitchesSinceCheckpoint": number("1"),
		"parentShardId":   set("shardId-000000000000"),
		"startingHashKey": text("0"), "endingHashKey": text("170141183460469231731687303715884105727"),
		"throughputKBps": number("12.345678"),
	},
	"KCL 3.5 in a hand-off, without an owner's sign of life": {
		"leaseKey": text("shardId-000000000001"), "leaseOwner": text("kcl-2"), "checkpointOwner": text("kcl-1"), "leaseCounter": number("41"),
		"checkpoint": text(at1), "checkpointSubSequenceNumber": number("0"), "ownerSwitchesSinceCheckpoint": number("1"),
		"throughputKBps": number("0"), "entityType": text("LEASE"),
	},
	"KCL 2, nobody's": {
		"leaseKey": text("shardId-000000000001"), "leaseCounter": number("0"),
		"checkpoint": text("LATEST"), "checkpointSubSequenceNumber": number("0"), "ownerSwitchesSinceCheckpoint": number("0"),
	},
}

// A row of any KCL is read, taken, checkpointed, ended and given back; after each step
// it has what KCL would have written, what was there and is not kinetl's, and
// attributes that begin with kinetl.
func TestInterop(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	for name, it := range kclRows {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{AWS: cfg, Table: "leases"})
			r := raw{t, cfg, "leases"}
			r.put(it)
			read := reader{it: it}
			key := read.text("leaseKey")
			r.set(key, "somebodyElses", text("precious"))
			want := r.get(key)
			before := maps.Clone(want)
			expect := func(step string, changes map[string]string) {
				t.Helper()
				maps.Copy(want, changes)
				maps.DeleteFunc(want, func(_, v string) bool { return v == "" })
				have := r.get(key)
				for _, a := range slices.Sorted(maps.Keys(union(want, have))) {
					if want[a] != have[a] {
						t.Errorf("%s: %s is %q, want %q", step, a, have[a], want[a])
					}
				}
			}
			l, found, err := s.Get(t.Context(), key)
			if err != nil || !found || l.Unreadable != "" {
				t.Fatalf("read: %+v, %v", l, err)
			}
			if l.Foreign != (l.Owner != "") {
				t.Errorf("an owner of KCL's is foreign: %+v", l)
			}

			l, err = s.Update(t.Context(), l, l.TakenBy("kinetl-1"))
			must(t, err)
			expect("taken", map[string]string{
				"leaseOwner": "S kinetl-1", "leaseCounter": plus(before["leaseCounter"], 1),
				"ownerSwitchesSinceCheckpoint": plus(before["ownerSwitchesSinceCheckpoint"], 1),
				"checkpointOwner":              "", "kinetlOwner": "S kinetl-1",
			})

			l, err = s.Update(t.Context(), l, l) // renewed
			must(t, err)
			expect("renewed", map[string]string{"leaseCounter": plus(before["leaseCounter"], 2)})

			next := l
			next.Checkpoint, next.Sub, next.OwnerSwitches = at2, 5, 0
			next.Sink = lease.Sink{ID: "x", Table: "orders", Position: "p"}
			next.CaughtUp = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
			l, err = s.Update(t.Context(), l, next)
			must(t, err)
			expect("checkpointed", map[string]string{
				"leaseCounter": plus(before["leaseCounter"], 3), "checkpoint": "S " + at2, "checkpointSubSequenceNumber": "N 5", "ownerSwitchesSinceCheckpoint": "N 0",
				"pendingCheckpoint": "", "pendingCheckpointSubSequenceNumber": "", "pendingCheckpointState": "",
				"kinetlSink": `S {"ID":"x","Table":"orders","Position":"p"}`, "kinetlCaughtUp": "S 2026-12-01T10:00:00Z",
			})

			next = l
			next.Children = []string{"shardId-000000000003", "shardId-000000000002"}
			next.Checkpoint, next.Sub = lease.ShardEnd, 0
			l, err = s.Update(t.Context(), l, next)
			must(t, err)
			expect("ended", map[string]string{
				"leaseCounter": plus(before["leaseCounter"], 4), "checkpoint": "S SHARD_END", "checkpointSubSequenceNumber": "N 0",
				"childShardIds": "SS shardId-000000000002 shardId-000000000003",
			})

			next = l
			next.Owner = ""
			l, err = s.Update(t.Context(), l, next)
			must(t, err)
			expect("given back", map[string]string{"leaseCounter": plus(before["leaseCounter"], 5), "leaseOwner": "", "kinetlOwner": ""})
			if now, _, err := s.Get(t.Context(), key); err != nil || now.Foreign || !now.Ended() {
				t.Errorf("read again: %+v, %v", now, err)
			}
			must(t, s.Delete(t.Context(), l))
		})
	}
}

// plus adds to a number.
func plus(value string, n int64) string {
	have, _ := strconv.ParseInt(strings.TrimPrefix(value, "N "), 10, 64)
	return fmt.Sprint("N ", have+n)
}

// A row that kinetl makes is one that KCL would have made.
func TestCreatedAsKCLDoes(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	s, r := open(t, Options{AWS: cfg, Table: "leases"}), raw{t, cfg, "leases"}
	for key, more := range map[string]map[string]string{
		"shardId-000000000002":                                {"kinetlStream": "S arn:aws:kinesis:eu-west-1:111122223333:stream/orders@1700000000"},
		"111122223333:orders:1700000000:shardId-000000000002": {"streamName": "S 111122223333:orders:1700000000", "shardId": "S shardId-000000000002"},
	} {
		l := lease.Lease{
			Key: key, Checkpoint: lease.TrimHorizon, Parents: []string{"shardId-000000000000", "shardId-000000000001"}, StartingHashKey: "0", EndingHashKey: "9",
		}
		if k, err := lease.ParseKey(key); err == nil && k.Short() {
			l.Stream = lease.StreamID("arn:aws:kinesis:eu-west-1:111122223333:stream/orders", 1700000000)
		}
		create(t, s, l)
		want := map[string]string{
			"leaseKey": "S " + key, "leaseCounter": "N 0", "checkpoint": "S TRIM_HORIZON", "checkpointSubSequenceNumber": "N 0",
			"ownerSwitchesSinceCheckpoint": "N 0", "parentShardId": "SS shardId-000000000000 shardId-000000000001",
			"startingHashKey": "S 0", "endingHashKey": "S 9",
		}
		maps.Copy(want, more)
		if have := r.get(key); !maps.Equal(have, want) {
			t.Errorf("%s: got %v, want %v", key, have, want)
		}
	}
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
