package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Generation is what a lease table and the tables beside it tell about the KCL that
// has used them. Of the application's leases it tells nothing.
type Generation struct {
	Index      bool     // the table has KCL 3's index of leases by owner
	Metrics    bool     // there is a table of worker metrics (KCL 3.0 to 3.4)
	Locks      []Lock   // items Leader
	Client     string   // cv of item Migration3.0: which algorithms KCL 3 workers use
	Tables     string   // tm of item TableMigration3.5
	Unreadable []string // tables that could not be read, and why
}

// Lock is the item by which KCL 3 workers agree on a leader. Its owner writes a new
// version every heartbeat; who finds it unchanged for its Lease may take it.
type Lock struct {
	Table    string        // that holds the item
	Owner    string        // ownerName: a worker id
	Version  string        // recordVersionNumber
	Lease    time.Duration // leaseDuration
	Released bool          // isReleased
}

// Values of Generation.Client. With the first two KCL 3 workers take and steal as
// those of KCL 2 do.
const (
	Client2X      = "CLIENT_VERSION_2X"
	ClientUpgrade = "CLIENT_VERSION_UPGRADE_FROM_2X"
)

// KCL3 reports whether KCL 3 has been here.
func (g Generation) KCL3() bool {
	return g.Index || g.Metrics || len(g.Locks) > 0 || g.Client != "" || g.Tables != ""
}

// as2X reports whether KCL 3 workers, if there are any, take leases as KCL 2 does.
func (g Generation) as2X() bool { return g.Client == Client2X || g.Client == ClientUpgrade }

func (g Generation) String() string {
	var seen []string
	add := func(is bool, what string) {
		if is {
			seen = append(seen, what)
		}
	}
	add(g.Client != "", "Migration3.0 says "+g.Client)
	add(g.Tables != "", "TableMigration3.5 says "+g.Tables)
	add(g.Index, "index LeaseOwnerToLeaseKeyIndex")
	add(g.Metrics, "worker metrics table")
	for _, l := range g.Locks {
		add(true, "leader lock of "+l.Owner+" in "+l.Table)
	}
	of := "KCL 1 or 2, or none"
	if g.KCL3() {
		of = "KCL 3"
	}
	for _, u := range g.Unreadable {
		add(true, "not seen: "+u)
	}
	if len(seen) == 0 {
		return of
	}
	return of + " (" + strings.Join(seen, ", ") + ")"
}

// Judgement is whether leases may be taken.
type Judgement uint8

const (
	Unknown Judgement = iota // look again after Verdict.Wait, and take nothing until then
	Clear                    // no KCL 3 worker assigns leases here
	Live                     // one does: drain, release, refuse
)

// Verdict is what Watch found.
type Verdict struct {
	Judgement Judgement
	Wait      time.Duration // when to look again, where that is sooner than in a minute
	Left      time.Duration // with Unknown: when it will be known at the latest
	Note      string        // what a person should know: why, and what could not be seen
}

// KCL3Error: a KCL 3 fleet assigns the leases, and this worker has released its own.
// It helps to stop that fleet or to choose another application, and nothing else.
type KCL3Error struct{ Note string }

func (e *KCL3Error) Error() string {
	return fmt.Sprintf("KCL 3 is at work on these leases: %s: stop every KCL 3 worker of this application, or give kinetl another application", e.Note)
}

// Err is nil unless leases are assigned by KCL 3; else a *KCL3Error.
func (v Verdict) Err() error {
	if v.Judgement != Live {
		return nil
	}
	return &KCL3Error{v.Note}
}

// Watch finds out whether a KCL 3 fleet lives (R22). In such a fleet a leader assigns
// leases, to workers that publish metrics; a worker that takes leases by itself fights
// it. A fleet that was stopped leaves the same items behind and may be taken over.
//
// Judge is to be called before the first lease is taken, every minute, and when any
// lease has a CheckpointOwner. It is pure: life is change between two looks, on this
// worker's own clock.
//
//   - A table without KCL 3's index, and without a lock that is held, is clear at
//     once: KCL 3 assigns nothing before the index is there, and through its leader
//     alone. So is one whose Migration3.0 says that KCL 3 workers use the algorithms
//     of KCL 2.
//   - A lock whose version changed, or a hand-off that moved, is a live leader.
//   - A foreign owner that renews while Migration3.0 names version 3, or while there
//     is an index and no Migration3.0 to be seen, is a worker of such a fleet, even
//     while its leader is being replaced.
//   - A table in which every open lease was last owned or written by kinetl is clear
//     at once: it was taken over before. If KCL 3 starts now, it shows at the next
//     look.
//   - A lock that has come since the last look is looked at again after its heartbeat,
//     also where the table was taken over: a fleet may be starting beside kinetl.
//   - Otherwise it is clear when every lock has stood still for its own lease, 120 s
//     by default, which is KCL's rule for a dead leader. It is clear after a third
//     of that, if no foreign owner has renewed either. A leader's heartbeat is a
//     quarter of the lease; an owner renews three times within its failover time,
//     which would have to be longer than the lock's lease; and a leader that lives
//     gives what expired to a live worker within two failover times, which changes
//     the row. A fleet of which nothing of all this moves reads nothing.
type Watch struct {
	locks map[string]sight
	rows  map[string]sight
	quiet time.Time // since when no foreign owner was seen to renew
}

// sight is a value, and since when it has stood.
type sight struct {
	value string
	since time.Time
}

// lockLease is KCL's default, for where there is no lock to be seen.
const lockLease = 120 * time.Second

// Judge gives the verdict of one look: what stands in the tables, and the leases.
func (w *Watch) Judge(now time.Time, g Generation, leases []Lease) Verdict {
	beat := w.observeLocks(now, g.Locks)
	renewing, moved := w.observeRows(now, leases)
	note := strings.Join(g.Unreadable, "; ")
	live := func(why string) Verdict { return Verdict{Judgement: Live, Note: join(why, note)} }
	switch {
	case beat.Owner != "":
		return live("worker " + beat.Owner + " holds the leader lock in table " + beat.Table + " and renews it")
	case moved != "":
		return live("lease " + moved + " is being handed over")
	case !g.Index && !held(g.Locks) || g.as2X():
		return Verdict{Judgement: Clear, Note: note}
	case renewing != "" && (g.Client != "" || g.Index):
		return live("worker " + renewing + " renews its leases; " + g.String())
	case takenOver(leases):
		return Verdict{Judgement: Clear, Wait: w.heartbeat(now, g.Locks), Note: note}
	}
	left := w.left(now, g.Locks)
	if left > 0 {
		return Verdict{Judgement: Unknown, Left: left, Wait: min(left, 5*time.Second), Note: "finding out whether a KCL 3 fleet lives: " + g.String()}
	}
	return Verdict{Judgement: Clear, Note: "taking over from a KCL 3 fleet that has stopped: " + g.String()}
}

// observeLocks notes the locks and returns one that changed and is held.
func (w *Watch) observeLocks(now time.Time, locks []Lock) (beat Lock) {
	next := map[string]sight{}
	for _, l := range locks {
		s, seen := w.locks[l.Table]
		if !seen || s.value != l.Version {
			s = sight{l.Version, now}
			if seen && !l.Released {
				beat = l
			}
		}
		next[l.Table] = s
	}
	w.locks = next
	return beat
}

// observeRows notes foreign owners that renew. It returns one, and a lease whose
// hand-off moved.
func (w *Watch) observeRows(now time.Time, leases []Lease) (renewing, moved string) {
	if w.quiet.IsZero() {
		w.quiet = now
	}
	next := map[string]sight{}
	for _, l := range leases {
		if !l.Foreign && l.CheckpointOwner == "" || l.Ended() {
			continue
		}
		value := fmt.Sprintf("%q %q %d", l.Owner, l.CheckpointOwner, l.Counter)
		if s, seen := w.rows[l.Key]; seen && s.value != value {
			w.quiet, renewing = now, l.Owner
			if l.CheckpointOwner != "" {
				moved = l.Key
			}
		}
		next[l.Key] = sight{value, now}
	}
	w.rows = next
	return renewing, moved
}

// left is how long until it is known that nothing lives, if nothing moves.
func (w *Watch) left(now time.Time, locks []Lock) time.Duration {
	still := w.quiet
	longest, dead := time.Duration(0), time.Duration(-1)
	for _, l := range locks {
		if l.Released || l.Lease <= 0 {
			continue
		}
		since := w.locks[l.Table].since
		longest, dead = max(longest, l.Lease), max(dead, l.Lease-now.Sub(since))
		if since.After(still) {
			still = since
		}
	}
	if longest == 0 {
		return lockLease/3 - now.Sub(still)
	}
	return min(longest/3-now.Sub(still), dead)
}

// heartbeat is after what time a lock that stands since this look alone has changed, if
// its owner lives: KCL renews it every quarter of its lease. Zero: there is none.
func (w *Watch) heartbeat(now time.Time, locks []Lock) (wait time.Duration) {
	for _, l := range locks {
		if !l.Released && w.locks[l.Table].since.Equal(now) {
			wait = max(wait, l.Lease/4+heartbeatSlack)
		}
	}
	return wait
}

// heartbeatSlack is what a heartbeat may be late.
const heartbeatSlack = 5 * time.Second

func held(locks []Lock) bool {
	return slices.ContainsFunc(locks, func(l Lock) bool { return !l.Released })
}

// takenOver reports whether there are open leases, none of them as KCL left it.
func takenOver(leases []Lease) bool {
	any := false
	for _, l := range leases {
		if l.Ended() || l.Unreadable != "" {
			continue
		}
		ours := l.Owner != "" && !l.Foreign || l.Owner == "" && (l.Stream != "" || l.Sink != (Sink{}) || !l.Created.IsZero())
		if !ours || l.CheckpointOwner != "" {
			return false
		}
		any = true
	}
	return any
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}
