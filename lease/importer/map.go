package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Mapping is what rows come to.
type Mapping struct {
	Leases  []lease.Lease // ancestors first
	LeftOut []Fault       // rows of shards that have left their stream
	Foreign []Fault       // rows of streams that the pipeline does not read
	Faults  []Fault       // nothing may be written while there is one
}

// Map makes leases of rows. start is where the application begins what nobody has
// read; its instant counts for AtTimestamp.
//
// Besides the shards that have rows those get a lease which kinetl would otherwise
// read from a wrong place: descendants of such a shard, which begin at their
// beginning although their parent may have left the listing, and ancestors, which
// kinetl would take for finished (R17). All others are left to kinetl's own start.
func Map(layout Layout, rows []Row, listing Listing, start lease.Start) Mapping {
	m := &mapper{
		layout: layout, at: listing.At, start: start,
		listed: map[string]Shard{}, streams: map[string]*stream{}, rows: map[string]Row{}, leased: map[string]bool{}, below: map[string]bool{},
	}
	for _, s := range listing.Shards {
		m.listed[s.Key] = s
		st := m.streams[s.Group]
		if st == nil {
			st = &stream{arn: s.ARN}
			m.streams[s.Group] = st
		}
		st.newest = max(st.newest, s.ID)
	}
	for _, r := range rows {
		if r.Shard != "" {
			m.match(r)
		}
	}
	for key := range m.rows {
		m.markAncestors(m.listed[key])
	}
	shards := slices.Clone(listing.Shards)
	slices.SortFunc(shards, func(a, b Shard) int { return strings.Compare(a.Key, b.Key) })
	for _, s := range shards {
		m.visit(s)
	}
	return m.out
}

type mapper struct {
	layout  Layout
	at      time.Time
	start   lease.Start
	listed  map[string]Shard   // by lease key
	streams map[string]*stream // by group
	rows    map[string]Row     // by lease key, of shards that have left the listing too
	below   map[string]bool    // shards with a descendant that has a row
	leased  map[string]bool    // visited; value: gets a lease
	out     Mapping
}

// stream is a listed stream.
type stream struct {
	arn    string
	newest string // highest shard id
	known  bool   // has rows
}

func (m *mapper) fault(r Row, format string, args ...any) {
	m.out.Faults = append(m.out.Faults, Fault{r.String(), fmt.Sprintf(format, args...)})
}

// match finds the shard of a row.
func (m *mapper) match(r Row) {
	var groups []string
	for group, st := range m.streams {
		if isStream(r.Stream, st.arn) {
			groups = append(groups, group)
		}
	}
	switch {
	case len(groups) == 0:
		m.out.Foreign = append(m.out.Foreign, Fault{r.String(), "its stream is none that the pipeline reads"})
		return
	case len(groups) > 1:
		m.fault(r, "it may be of any of %d streams that the pipeline reads: name the one in the source", len(groups))
		return
	}
	st, key := m.streams[groups[0]], groups[0]+r.Shard
	_, listed := m.listed[key]
	before, twice := m.rows[key]
	switch {
	case twice:
		m.fault(r, "the shard has another row, of stream %q: delete the one that is not used", before.Stream)
	case !listed && r.Shard > st.newest:
		m.fault(r, "the stream's newest shard is %s: it was deleted and created anew, or the table is of another account or region", st.newest)
	default:
		m.rows[key], st.known = r, true
		if !listed {
			m.out.LeftOut = append(m.out.LeftOut, Fault{r.String(), "the shard has left the stream"})
		}
	}
}

// isStream reports whether a row's stream, a name or an ARN that may have * for parts,
// is the one of this ARN. A row that names none may be of any.
func isStream(name, arn string) bool {
	if name == "" || name == arn || name == arn[strings.LastIndexByte(arn, '/')+1:] {
		return true
	}
	have, want := strings.SplitN(arn, ":", 6), strings.SplitN(name, ":", 6)
	if len(have) != 6 || len(want) != 6 {
		return false
	}
	for i := range have {
		if want[i] != "*" && want[i] != have[i] {
			return false
		}
	}
	return true
}

func (m *mapper) markAncestors(s Shard) {
	for _, p := range s.Parents {
		if key := s.Group + p; !m.below[key] {
			m.below[key] = true
			m.markAncestors(m.listed[key])
		}
	}
}

// visit gives a shard its lease, after its ancestors.
func (m *mapper) visit(s Shard) (leased bool) {
	if leased, done := m.leased[s.Key]; done {
		return leased
	}
	m.leased[s.Key] = false // a listing that goes round in circles ends here
	after := false          // an ancestor was read or will be
	for _, p := range s.Parents {
		key := s.Group + p
		if parent, listed := m.listed[key]; listed && m.visit(parent) {
			after = true
		}
		if _, has := m.rows[key]; has {
			after = true
		}
	}
	l := lease.Lease{
		Key: s.Key, Parents: slices.Sorted(slices.Values(s.Parents)), Created: m.at,
		Stream: s.Stream, StartingHashKey: s.StartingHashKey, EndingHashKey: s.EndingHashKey,
	}
	row, has := m.rows[s.Key]
	ok := true
	switch {
	case has:
		ok = m.position(&l, row, s, after)
	case m.layout.deletesEnded && s.Closed && m.streams[s.Group].known:
		ok = m.ended(&l, s, after)
	case after || m.below[s.Key]:
		m.begin(&l, Row{}, after)
	default:
		return false
	}
	if ok {
		m.out.Leases = append(m.out.Leases, l)
	}
	m.leased[s.Key] = true
	return true
}

// position takes the lease to where a row says.
func (m *mapper) position(l *lease.Lease, r Row, s Shard, after bool) (ok bool) {
	switch {
	case r.Checkpoint == "" || r.Checkpoint == lease.Latest:
		m.begin(l, r, after)
	case r.Checkpoint == lease.AtTimestamp && m.start.Checkpoint != lease.AtTimestamp:
		m.fault(r, "it says AT_TIMESTAMP and not which: set startPosition to that time")
		return false
	case r.Checkpoint == lease.AtTimestamp:
		l.Checkpoint, l.Start = lease.AtTimestamp, m.start.Instant
	case r.Checkpoint == lease.ShardEnd && !s.Closed:
		m.fault(r, "it says SHARD_END, and the shard is open: the row is of another stream, account or region")
		return false
	case isWord(r.Checkpoint):
		l.Checkpoint = r.Checkpoint
	case s.First != "" && less(r.Checkpoint, s.First), s.Last != "" && less(s.Last, r.Checkpoint):
		m.fault(r, "its sequence number %s is none of the shard's, which go from %s to %s: the row is of another stream, account or region, or the stream was deleted and created anew",
			r.Checkpoint, s.First, cmp.Or(s.Last, "its tip"))
		return false
	default:
		l.Checkpoint, l.Sub = r.Checkpoint, r.Sub
	}
	return true
}

// begin takes the lease to where a shard begins of which nothing was read: a child at
// its beginning, any other where the application starts. What came since the other
// system looked last is not skipped, nor what it may not have finished then.
func (m *mapper) begin(l *lease.Lease, r Row, after bool) {
	switch {
	case after || m.start.Checkpoint == lease.TrimHorizon && r.Checkpoint == "":
		l.Checkpoint = lease.TrimHorizon
	case m.start.Checkpoint == lease.AtTimestamp && r.Checkpoint == "":
		l.Checkpoint, l.Start = lease.AtTimestamp, m.start.Instant
	default:
		l.Checkpoint, l.Start = lease.Latest, m.at
		if !r.Wrote.IsZero() && r.Wrote.Before(m.at) {
			l.Start = r.Wrote.Add(-quiet)
		}
	}
}

// ended settles a closed shard without a row, where the row of a finished one is
// deleted: finished if only descendants have rows, never read if only ancestors do.
// Otherwise nobody can tell, and a guess would skip a whole shard or repeat it.
func (m *mapper) ended(l *lease.Lease, s Shard, after bool) (ok bool) {
	switch below := m.below[s.Key]; {
	case below && !after:
		l.Checkpoint = lease.ShardEnd
	case after && !below:
		l.Checkpoint = lease.TrimHorizon
	default:
		m.fault(Row{Stream: s.ARN, Shard: s.ID}, "the shard is closed and has no row, and %s deletes the row of one that it finished: nobody can tell whether it was read: let %[1]s run until it holds the stream's present shards, and stop it", m.layout.Name)
		return false
	}
	return true
}

// less compares decimal numbers without leading zeros.
func less(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) < 0
}
