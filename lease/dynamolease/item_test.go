package dynamolease

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

func number(digits string) types.AttributeValue { return &types.AttributeValueMemberN{Value: digits} }

func set(members ...string) types.AttributeValue {
	return &types.AttributeValueMemberSS{Value: members}
}

func bytesOf(b ...byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

// What is no lease is left out; a row that can't be read is kept as such, told once,
// and neither stops the others nor is written.
func TestRowsOfOthers(t *testing.T) {
	var told []string
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	s := open(t, Options{AWS: cfg, Table: "leases", Unreadable: func(key, why string) { told = append(told, key+": "+why) }})
	r := raw{t, cfg, "leases"}
	create(t, s, row("s:1"))
	for _, kind := range []string{"LEADER", "CLIENT_VERSION_MIGRATION", "TABLE_MIGRATION", "WORKER_METRIC_STATS", "STREAM"} {
		r.put(item{"leaseKey": text("of " + kind), "entityType": text(kind)})
	}
	r.put(item{"leaseKey": text("s:2"), "leaseCounter": number("1"), "checkpoint": text("7"), "entityType": text("LEASE"), "pendingCheckpointState": number("1")})
	for name, it := range map[string]item{
		"an accident":     {"leaseCounter": number("0")},
		"no number":       {"leaseCounter": text("1"), "checkpoint": text("7")},
		"no checkpoint":   {"leaseCounter": number("1"), "checkpoint": text("soon"), "kinetlSignal": text("1")},
		"no set":          {"leaseCounter": number("1"), "checkpoint": text("7"), "parentShardId": text("0")},
		"an empty owner":  {"leaseCounter": number("1"), "checkpoint": text("7"), "leaseOwner": text("")},
		"no whole number": {"leaseCounter": number("1.5"), "checkpoint": text("7")},
	} {
		it["leaseKey"] = text(name)
		r.put(it)
	}
	for range 2 {
		all, err := s.List(t.Context())
		must(t, err)
		var keys, broken []string
		for _, l := range all {
			if l.Unreadable == "" {
				keys = append(keys, l.Key)
				continue
			}
			broken = append(broken, l.Key)
			if _, err := s.Update(t.Context(), l, l.TakenBy("me")); !errors.Is(err, lease.ErrLost) {
				t.Errorf("%s was written: %v", l.Key, err)
			}
			if err := s.Delete(t.Context(), l); !errors.Is(err, lease.ErrLost) {
				t.Errorf("%s was deleted: %v", l.Key, err)
			}
		}
		if want := []string{"an accident", "an empty owner", "no checkpoint", "no number", "no set", "no whole number"}; !slices.Equal(broken, want) {
			t.Errorf("can't be read: %q", broken)
		}
		if want := []string{"s:1", "s:2"}; !slices.Equal(keys, want) {
			t.Errorf("leases: %q", keys)
		}
	}
	slices.Sort(told)
	if len(told) != 6 || !strings.Contains(told[0], "leaseCounter") && !strings.Contains(told[0], "checkpoint is missing") {
		t.Errorf("told: %q", told)
	}
	if _, found, err := s.Get(t.Context(), "of LEADER"); found || err != nil {
		t.Errorf("a leader's lock is a lease: %v", err)
	}
	if l, found, err := s.Get(t.Context(), "no checkpoint"); !found || err != nil || l.Unreadable == "" || l.Signal != "1" {
		t.Errorf("got %+v, %v", l, err)
	}
}

// SHARD_END stays, unless who writes has seen it: a late checkpoint does not open a
// finished shard again, and reopening it on purpose works (R8).
func TestShardEndStays(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	s := open(t, Options{AWS: cfg, Table: "leases"})
	seen := create(t, s, row("s:1"))
	raw{t, cfg, "leases"}.set("s:1", "checkpoint", text(lease.ShardEnd)) // by hand, or by KCL without a counter
	late := seen
	late.Checkpoint = "7"
	for _, next := range []lease.Lease{late, seen} {
		if _, err := s.Update(t.Context(), seen, next); !errors.Is(err, lease.ErrLost) {
			t.Errorf("a write of %s: %v", next.Checkpoint, err)
		}
	}
	end := seen
	end.Checkpoint = lease.ShardEnd
	ended, err := s.Update(t.Context(), seen, end)
	must(t, err)
	if ended, err = s.Update(t.Context(), ended, ended); err != nil {
		t.Errorf("a write to a finished shard: %v", err)
	}
	open := ended
	open.Checkpoint = "7"
	if got, err := s.Update(t.Context(), ended, open); err != nil || got.Checkpoint != "7" {
		t.Errorf("reopened: %+v, %v", got, err)
	}
	// Deleting asks again whether it is finished.
	if err := s.Delete(t.Context(), lease.Lease{Key: "s:1", Counter: 3, Checkpoint: lease.ShardEnd}); !errors.Is(err, lease.ErrLost) {
		t.Errorf("an open shard's row was deleted as a finished one's: %v", err)
	}
}

// Foreign is who wrote the owner, not who owns (R22).
func TestForeignOwners(t *testing.T) {
	cfg := dynamotest.Config(dynamotest.Dynalite(t))
	s, r := open(t, Options{AWS: cfg, Table: "leases"}), raw{t, cfg, "leases"}
	l := create(t, s, row("s:1"))
	look := func(step, owner string, foreign bool) lease.Lease {
		t.Helper()
		got, _, err := s.Get(t.Context(), "s:1")
		if err != nil || got.Owner != owner || got.Foreign != foreign {
			t.Errorf("%s: %+v, %v", step, got, err)
		}
		return got
	}
	look("nobody's", "", false)
	r.set("s:1", "leaseOwner", text("kcl"))
	l = look("KCL took it", "kcl", true)
	resolved, err := s.Update(t.Context(), l, l)
	must(t, err)
	look("written without taking it", "kcl", true)
	taken, err := s.Update(t.Context(), resolved, resolved.TakenBy("kinetl"))
	must(t, err)
	if taken.Foreign {
		t.Error("what was taken is foreign")
	}
	look("kinetl took it", "kinetl", false)
	r.set("s:1", "leaseOwner", text("kcl"))
	look("KCL stole it", "kcl", true)
}

// What is decoded is written as it was read, whatever stands in the table.
func FuzzDecode(f *testing.F) {
	f.Add("7", "1", "0", "me", "me", `{"ID":"x"}`, "2026-12-01T10:00:00Z", "shardId-0", uint8(0))
	f.Add("SHARD_END", "9223372036854775807", "18446744073709551615", "", "", "", "", "", uint8(255))
	f.Add("soon", "-1", "1e3", "a", "b", "{", "yesterday", "x", uint8(1))
	f.Fuzz(func(t *testing.T, checkpoint, counter, sub, owner, mark, sink, at, parent string, kinds uint8) {
		it := item{"leaseKey": text("s:1")}
		add := func(bit int, name, value string, usual, other types.AttributeValue) {
			if value == "" {
				return
			}
			if it[name] = usual; kinds&(1<<bit) != 0 {
				it[name] = other
			}
		}
		add(0, "checkpoint", checkpoint, text(checkpoint), number(checkpoint))
		add(1, "leaseCounter", counter, number(counter), text(counter))
		add(2, "checkpointSubSequenceNumber", sub, number(sub), set(sub))
		add(3, "leaseOwner", owner, text(owner), bytesOf(1))
		add(4, "kinetlOwner", mark, text(mark), number(mark))
		add(5, "kinetlSink", sink, text(sink), bytesOf(1))
		add(6, "kinetlCaughtUp", at, text(at), number(at))
		add(7, "parentShardId", parent, set(parent), text(parent))
		l, err := decode(it)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || unreadable(it, err).Unreadable == "" {
				t.Errorf("%q", err)
			}
			return
		}
		again, err := decode(encode(l))
		if err != nil || !l.CaughtUp.Equal(again.CaughtUp) {
			t.Fatalf("%+v became %+v, %v", l, again, err)
		}
		l.CaughtUp = again.CaughtUp // one instant has many spellings
		if !reflect.DeepEqual(l, again) {
			t.Errorf("%+v became %+v", l, again)
		}
	})
}
