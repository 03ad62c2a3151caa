package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts replays testdata: a table of leases and a listing of shards, and
// what one worker decides. `go test ./lease -run TestTranscripts -rewrite` writes
// the decisions anew; commit only a difference that you understand.
//
//	worker NAME [max=N]        a coordinator with a failover of 10 s
//	leases                     one a line: KEY CHECKPOINT [owner=] [counter=] [parents=a,b] [start=SECONDS] [created=SECONDS] [handoff=] [gone] [foreign] [unreadable]
//	signal                     what stands on the first lease
//	shards                     one a line: KEY [parents=a,b] [closed-at-start]
//	step at=SECONDS [held=a,b] [start=TRIM_HORIZON|LATEST|AT_TIMESTAMP] [instant=SECONDS]
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "rapid") || strings.Contains(path, "fuzz") {
			return // what other tests failed with
		}
		var c Coordinator
		var leases []Lease
		var listing Listing
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "worker":
				c = Coordinator{Worker: d.CmdArgs[0].Key, Failover: 10 * time.Second}
				d.MaybeScanArgs(t, "max", &c.MaxLeases)
			case "leases":
				leases = nil
				for _, line := range lines(d.Input) {
					leases = append(leases, parseLease(t, line))
				}
			case "signal":
				leases[0].Signal = strings.TrimSpace(d.Input)
			case "shards":
				listing = Listing{At: second(1000)}
				for _, line := range lines(d.Input) {
					listing.Shards = append(listing.Shards, parseShard(line))
				}
			case "step":
				return step(t, d, &c, leases, listing)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

func step(t *testing.T, d *datadriven.TestData, c *Coordinator, leases []Lease, listing Listing) string {
	at, instant, start := 0, 0, Start{Checkpoint: TrimHorizon}
	var held []string
	d.ScanArgs(t, "at", &at)
	for _, a := range d.CmdArgs {
		if a.Key == "held" {
			held = a.Vals
		}
	}
	d.MaybeScanArgs(t, "start", &start.Checkpoint)
	if d.MaybeScanArgs(t, "instant", &instant) {
		start.Instant = second(instant)
	}
	var b strings.Builder
	for _, a := range c.Step(second(at), leases, listing, held, start) {
		fmt.Fprintf(&b, "%s %s", a.Kind, a.Lease.Key)
		switch a.Kind {
		case Create:
			fmt.Fprintf(&b, " %s", a.Lease.Checkpoint)
			if !a.Lease.Start.IsZero() {
				fmt.Fprintf(&b, " start=%d", a.Lease.Start.Unix())
			}
			if !a.Lease.Created.Equal(listing.At) {
				fmt.Fprintf(&b, " created=%s", a.Lease.Created)
			}
		case Take, Steal:
			if a.Lease.Owner != "" {
				fmt.Fprintf(&b, " from %s", a.Lease.Owner)
			}
		case Announce:
			fmt.Fprintf(&b, " %s", a.Text)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func second(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })
}

func parseLease(t *testing.T, line string) Lease {
	f := strings.Fields(line)
	l := Lease{Key: f[0], Checkpoint: f[1], Counter: 1}
	for _, arg := range f[2:] {
		name, value, _ := strings.Cut(arg, "=")
		var n int
		switch name {
		case "owner":
			l.Owner = value
		case "counter":
			_, err := fmt.Sscan(value, &n)
			l.Counter = int64(n)
			if err != nil {
				t.Fatal(err)
			}
		case "parents":
			l.Parents = strings.Split(value, ",")
		case "start":
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatal(err)
			}
			l.Start = second(n)
		case "created":
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatal(err)
			}
			l.Created = second(n)
		case "incident":
			l.Incident = "[]"
		case "handoff":
			l.CheckpointOwner = value
		case "gone":
			l.OwnerGone = true
		case "foreign":
			l.Foreign = true
		case "unreadable":
			l = Lease{Key: l.Key, Unreadable: "broken"}
		default:
			t.Fatalf("unknown attribute %s", arg)
		}
	}
	return l
}

func parseShard(line string) Shard {
	f := strings.Fields(line)
	s := Shard{Key: f[0], Group: Group(f[0]), ID: f[0][len(Group(f[0])):], OpenAtStart: true}
	for _, arg := range f[1:] {
		if parents, ok := strings.CutPrefix(arg, "parents="); ok {
			s.Parents = strings.Split(parents, ",")
		}
		if arg == "closed-at-start" {
			s.OpenAtStart = false
		}
	}
	return s
}
