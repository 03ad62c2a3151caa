package kinetl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kinetl/kinetl/lease"
)

// Repositioning says from where shards are to be read again, or on (R14).
type Repositioning struct {
	Source      Source
	Leases      lease.Store
	Destination Destination
	Table       func(ShardID) string // as in PipelineConfig; default: the stream's name

	// To is the new position of each shard: a record's (reading goes on after it),
	// Oldest, or Since an instant. The latest record is the instant of a listing that
	// was made now, by the service's clock.
	To map[ShardID]Position
	// Descendants also resets the descendants of a shard that was finished, to their
	// beginning. Without, resetting a finished shard is refused while they have been
	// read: its records would come after theirs.
	Descendants bool
	Reason      string // recorded in _kinetl_gaps; must be set

	// DeleteRows deletes the rows and dead letters that will be read again: those from
	// the first record on that the stream still has after the new position. What has
	// left the stream stays. The destination must be a RowDeleter.
	DeleteRows bool
	DryRun     bool // nothing is changed, the answer is what would be
}

// Repositioned is one shard that was moved.
type Repositioned struct {
	Shard    ShardID
	Table    string
	From, To Position // From is To where the watermark stood there already, or was none: the shard had not been read
	Deleted  Deleted
}

// FinishedError: a shard that is to be repositioned was finished, and shards that
// descend from it have been read.
type FinishedError struct {
	Shard       ShardID
	Descendants []ShardID
}

func (e *FinishedError) Error() string {
	var names []string
	for _, d := range e.Descendants {
		names = append(names, d.Shard)
	}
	return fmt.Sprintf("%s: the shard is finished, and its records would come after those of %s: reset these too", e.Shard, strings.Join(names, ", "))
}

// Reposition moves watermarks, all of a table in one transaction, and then the leases.
// It may be called while workers run: the table fences what they have read meanwhile,
// and they lose the leases, which whoever takes them next reads from the new position.
// A call that failed in between is repeated; it does no harm.
//
// Errors: *FinishedError; *MovedError, when a worker committed in between: repeat;
// *OtherApplicationError; *UndeletableError; or one of source, store or destination. A shard that the
// service does not list, that has no lease yet, or to which the position does not
// belong, is an error before anything is written.
func Reposition(ctx context.Context, r Repositioning) ([]Repositioned, error) {
	if r.Table == nil {
		r.Table = ShardID.StreamName
	}
	p := &repositioner{Repositioning: r, to: map[ShardID]Position{}}
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	if err := p.plan(); err != nil {
		return nil, err
	}
	if r.DeleteRows {
		if err := p.findAgain(ctx); err != nil {
			return nil, err
		}
	}
	moved, sinks, err := p.moveWatermarks(ctx)
	if err != nil || r.DryRun {
		return moved, err
	}
	for _, m := range moved {
		if err := p.moveLease(ctx, m, sinks[m.Table]); err != nil {
			return nil, fmt.Errorf("move lease of %s, repeat the command: %w", m.Shard, err)
		}
	}
	return moved, nil
}

// repositioner is one call of Reposition.
type repositioner struct {
	Repositioning
	form    lease.Form
	listing Listing // parents first
	leased  map[string]lease.Lease
	to      map[ShardID]Position
	again   map[ShardID]Position // the first record of each shard that will be read again
}

func (p *repositioner) read(ctx context.Context) error {
	leases, err := p.Leases.List(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	if p.form, err = lease.FormOf(leases); err != nil {
		return err
	}
	p.leased = map[string]lease.Lease{}
	for _, l := range leases {
		p.leased[l.Key] = l
	}
	if p.listing, err = p.Source.Shards(ctx, time.Time{}); err != nil {
		return fmt.Errorf("list shards: %w", err)
	}
	return nil
}

func (p *repositioner) lease(s ShardID) (lease.Lease, bool) {
	l, ok := p.leased[keyOf(s, p.form)]
	return l, ok && (l.Stream == "" || l.Stream == streamID(s, p.form))
}

// plan checks the positions and settles what becomes of descendants.
func (p *repositioner) plan() error {
	listed := map[ShardID]ShardInfo{}
	for _, info := range p.listing.Shards {
		listed[info.ID] = info
	}
	for shard, to := range p.To {
		info, ok := listed[shard]
		if !ok {
			return fmt.Errorf("%s: the service does not list the shard: nothing can be read of it", shard)
		}
		l, ok := p.lease(shard)
		if !ok {
			return fmt.Errorf("%s: the shard has no lease: it was finished long ago, or no worker has run since it came", shard)
		}
		if l.Unreadable != "" {
			return fmt.Errorf("%s: its lease can't be read, %s: put it right first", shard, l.Unreadable)
		}
		if err := within(info, to); err != nil {
			return err
		}
		p.to[shard] = to
	}
	return p.planDescendants()
}

// within refuses a position that is none of the shard's.
func within(info ShardInfo, to Position) error {
	if _, err := ParsePosition(string(to)); err != nil {
		return fmt.Errorf("%s: %w", info.ID, err)
	}
	seq, _, isRecord := to.Sequence()
	switch {
	case to == End:
		return fmt.Errorf("%s: a shard can't be moved to its end: only reading gets there", info.ID)
	case isRecord && (info.FirstSeq != "" && At(seq, 0) < At(info.FirstSeq, 0) || info.LastSeq != "" && At(seq, 0) > At(info.LastSeq, 0)):
		return fmt.Errorf("%s: sequence number %s is none of the shard's, which go from %s to %s", info.ID, seq, info.FirstSeq, info.LastSeq)
	}
	return nil
}

// planDescendants looks for shards that were read after one that is now to be read
// again. Those that are reset anyway are no obstacle, nor those that nobody has begun.
func (p *repositioner) planDescendants() error {
	again := map[ShardID]ShardID{} // a shard that will be behind -> the one that makes it so
	for shard := range p.to {
		if l, _ := p.lease(shard); l.Ended() {
			again[shard] = shard
		}
	}
	obstacles := map[ShardID][]ShardID{}
	for _, info := range p.listing.Shards { // parents come first
		for _, parent := range info.Parents {
			origin, behind := again[info.ID.Sibling(parent)]
			l, leased := p.lease(info.ID)
			if !behind || !leased {
				continue
			}
			again[info.ID] = origin
			if _, chosen := p.to[info.ID]; chosen || lease.IsSentinel(l.Checkpoint) {
				continue
			}
			if p.Descendants {
				p.to[info.ID] = Oldest
			} else {
				obstacles[origin] = append(obstacles[origin], info.ID)
			}
		}
	}
	for _, info := range p.listing.Shards {
		if found := obstacles[info.ID]; len(found) > 0 {
			return &FinishedError{info.ID, found}
		}
	}
	return nil
}

// findAgain asks the stream for the first record of each shard that will be read again.
// The table can't tell: what it holds from before that record has left the stream, and
// deleted it would be lost.
func (p *repositioner) findAgain(ctx context.Context) error {
	if _, able := p.Destination.(RowDeleter); !able {
		return errors.New("this destination can't delete rows: leave them, or delete them there")
	}
	p.again = map[ShardID]Position{}
	type answer struct {
		shard ShardID
		first Position
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	answers, turns := make(chan answer), make(chan struct{}, findAgainAtOnce)
	for shard, to := range p.to {
		go func() {
			turns <- struct{}{}
			first, err := firstAfter(ctx, p.Source, shard, to)
			<-turns
			answers <- answer{shard, first, err}
		}()
	}
	var failed error
	for range p.to {
		a := <-answers
		if a.err != nil && failed == nil {
			failed = fmt.Errorf("look for the first record of %s after %s: %w", a.shard, p.to[a.shard], a.err)
			cancel()
		}
		p.again[a.shard] = a.first
	}
	cancel()
	return failed
}

// findAgainAtOnce is how many shards are asked at a time.
const findAgainAtOnce = 32

// firstAfter is the first record that the shard still has after a position; empty: none
// up to its tip.
func firstAfter(ctx context.Context, source Source, shard ShardID, after Position) (Position, error) {
	reader, err := source.Read(ctx, shard, Resume{After: after, Accepted: true})
	if err != nil {
		return "", err
	}
	defer reader.Close()
	for {
		if _, err := reader.Ready(ctx); err != nil {
			return "", err
		}
		f, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		first := Position("")
		for i := range f.Records {
			// A reader that begins at the oldest record returns what comes before, too.
			if at := f.Records[i].Position(); at > after {
				first = at
				break
			}
		}
		if f.Release != nil {
			f.Release()
		}
		if first != "" || !f.CaughtUp.IsZero() {
			return first, nil
		}
	}
}

// moveWatermarks moves those that there are. Shards that were never read get theirs
// now: a worker that claims one before its lease is written would make it elsewhere.
func (p *repositioner) moveWatermarks(ctx context.Context) ([]Repositioned, map[string]string, error) {
	byTable := map[string][]ShardID{}
	for _, info := range p.listing.Shards {
		if _, chosen := p.to[info.ID]; chosen {
			table := p.Table(info.ID)
			byTable[table] = append(byTable[table], info.ID)
		}
	}
	var out []Repositioned
	sinks := map[string]string{}
	for table, shards := range byTable {
		moved, sink, err := p.moveTable(ctx, table, shards)
		if err != nil {
			return nil, nil, err
		}
		out, sinks[table] = append(out, moved...), sink
	}
	slices.SortFunc(out, func(a, b Repositioned) int { return strings.Compare(LeaseKey(a.Shard), LeaseKey(b.Shard)) })
	return out, sinks, nil
}

func (p *repositioner) moveTable(ctx context.Context, table string, shards []ShardID) (out []Repositioned, sink string, err error) {
	slices.SortFunc(shards, compareShards) // as commits lock their watermarks
	var claims []Claim
	for _, s := range shards {
		c := Claim{Shard: s}
		if !p.DryRun {
			c.Start = p.to[s]
		}
		claims = append(claims, c)
	}
	have, err := p.Destination.Claim(ctx, table, claims)
	if err != nil {
		return nil, "", fmt.Errorf("read watermarks of table %s: %w", table, err)
	}
	var moves []Move
	for _, s := range shards {
		from, exists := have.Through[s]
		if !exists {
			from = p.to[s]
		}
		out = append(out, Repositioned{Shard: s, Table: table, From: from, To: p.to[s]})
		if exists && (from != p.to[s] || p.again[s] != "") {
			moves = append(moves, Move{Shard: s, From: from, To: p.to[s], Again: p.again[s]})
		}
	}
	switch {
	case len(moves) == 0:
	case p.DeleteRows:
		deleted, err := p.Destination.(RowDeleter).MoveAndDelete(ctx, table, moves, p.Reason, p.DryRun)
		if err != nil {
			return nil, "", fmt.Errorf("move watermarks of table %s and delete rows: %w", table, err)
		}
		for i := range out {
			out[i].Deleted = deleted[out[i].Shard]
		}
	case p.DryRun:
	default:
		if err := p.Destination.Move(ctx, table, moves, p.Reason); err != nil {
			return nil, "", fmt.Errorf("move watermarks of table %s: %w", table, err)
		}
	}
	return out, have.Sink, nil
}

// moveLease makes a lease say what the table says. It is nobody's then: its owner, if
// there is one, notices at its next renewal.
func (p *repositioner) moveLease(ctx context.Context, m Repositioned, sink string) error {
	l, _ := p.lease(m.Shard)
	for range resolveTries {
		next := l
		setStart(&next, m.To)
		next.Owner, next.OwnerSwitches, next.CaughtUp, next.Accepted, next.Children = "", 0, time.Time{}, "", nil
		next.Sink = lease.Sink{ID: sink, Table: m.Table, Position: string(m.To)}
		if m.To == Oldest {
			// From what there is now on: a shard that was first listed long ago would
			// have lost records since then, and be an incident (R26).
			next.Created = p.listing.At
		}
		for _, inc := range OpenIncidents(next) {
			if inc.Halts {
				removeIncident(&next, inc.ID) // of where it stood
			}
		}
		_, err := p.Leases.Update(ctx, l, next)
		if err == nil || !errors.Is(err, lease.ErrLost) {
			return err
		}
		row, found, err := p.Leases.Get(ctx, l.Key)
		if err != nil || !found {
			return err // without a lease the shard is read from its watermark
		}
		l = row
		if !pause(ctx, jitter(20*time.Millisecond)) {
			return ctx.Err()
		}
	}
	return lease.ErrLost
}
