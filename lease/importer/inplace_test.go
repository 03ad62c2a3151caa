package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/dynamolease"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

// oldRows are Openflow's items of a stream with a finished shard, an aggregate that was
// read in part, and children of which one was not seen.
var oldRows = []item{
	{"streamName": text("orders"), "shardId": text("a"), "sequenceNumber": text("SHARD_END"), "lastUpdateTimestamp": num("1")},
	{"streamName": text("orders"), "shardId": text("b"), "sequenceNumber": text("150"), "subSequenceNumber": num("3"), "lastUpdateTimestamp": num("1")},
	{"streamName": text("orders"), "shardId": text("d"), "sequenceNumber": text("200"), "lastUpdateTimestamp": num("1"), "leaseOwner": text(node), "leaseExpiry": num("2")},
	{"streamName": text("orders"), "shardId": text("__node__#" + node)},
	{"streamName": text("orders"), "shardId": text("__migration__"), "migrationStatus": text("COMPLETE")},
}

const oldRowsAsLeases = "a SHARD_END, b 150.3, c TRIM_HORIZON, d 200 whole"

// place is a table that is to be replaced.
type place struct {
	t     *testing.T
	cfg   aws.Config
	db    *dynamodb.Client
	table string
	file  string
}

func newPlace(t *testing.T, endpoint, table string) *place {
	p := &place{t: t, cfg: dynamotest.Config(endpoint), table: table, file: filepath.Join(t.TempDir(), "backup.jsonl")}
	p.db = dynamodb.NewFromConfig(p.cfg)
	makeTable(t, p.db, table, Layouts()["openflow"].key)
	for _, it := range oldRows {
		put(t, p.db, table, it)
	}
	return p
}

// migration is one process that migrates; its requests go through do.
func (p *place) migration(do http.RoundTripper) *InPlace {
	cfg := p.cfg.Copy()
	if do != nil {
		cfg.HTTPClient = &http.Client{Transport: do}
	}
	options := func(table string, protected bool) dynamolease.Options {
		return dynamolease.Options{AWS: cfg, Table: table, Failover: time.Minute, DeletionProtection: protected}
	}
	return &InPlace{
		AWS: cfg, Layout: Layouts()["openflow"], Table: p.table, Backup: p.file, every: 10 * time.Millisecond,
		Map: func(_ context.Context, rows []Row, faults []Fault) ([]lease.Lease, error) {
			m := Map(Layouts()["openflow"], rows, family("a closed", "b<a", "c<a", "d"), latest)
			if m.Faults = append(faults, m.Faults...); len(m.Faults) > 0 {
				return nil, fmt.Errorf("%v", m.Faults)
			}
			return m.Leases, nil
		},
		Make: func(ctx context.Context, table string, protected bool) (lease.Store, error) {
			return dynamolease.Open(ctx, options(table, protected))
		},
		Open: func(ctx context.Context, table string) (lease.Store, error) {
			return dynamolease.OpenReader(ctx, options(table, false))
		},
	}
}

func (p *place) key(table string) string {
	p.t.Helper()
	key, _, err := (&inPlaceRun{db: p.db}).look(context.WithoutCancel(p.t.Context()), table)
	must(p.t, err)
	return key
}

// leases are what a lease table holds, in short, and whether workers are kept out.
func (p *place) leases(table string) (said string, guarded bool) {
	p.t.Helper()
	s, err := dynamolease.OpenReader(p.t.Context(), dynamolease.Options{AWS: p.cfg, Table: table, Failover: time.Minute})
	if errors.Is(err, fs.ErrNotExist) {
		return "", false // it is being made
	}
	must(p.t, err)
	all, err := s.List(p.t.Context())
	must(p.t, err)
	for _, l := range all {
		guarded = guarded || l.Key == guardKey
	}
	return say(Mapping{Leases: slices.DeleteFunc(all, func(l lease.Lease) bool { return l.Key == guardKey })}), guarded
}

// done wants that the migration is, and that the backup holds what was there.
func (p *place) done() {
	p.t.Helper()
	if key := p.key(p.table); key != leaseTable {
		p.t.Fatalf("%s has the key %q", p.table, key)
	}
	if said, guarded := p.leases(p.table); said != oldRowsAsLeases || guarded {
		p.t.Errorf("leases %s, workers kept out: %t", said, guarded)
	}
	if p.key(p.table+"_migration") != "" {
		p.t.Errorf("the copy is still there")
	}
	p.backedUp()
}

func (p *place) backedUp() {
	p.t.Helper()
	have, err := os.ReadFile(p.file)
	must(p.t, err)
	if n := bytes.Count(have, []byte("\n")); n != len(oldRows) || !json.Valid(have[:bytes.IndexByte(have, '\n')]) {
		p.t.Errorf("the backup:\n%s", have)
	}
}

// intact wants that the positions are complete in one of the tables, and that before
// the old one is gone they are in the backup; and that no worker can begin on a part.
func (p *place) intact(when string) {
	p.t.Helper()
	now, copyThere := filling, p.key(p.table+"_migration") == leaseTable
	if copyThere {
		var err error
		now, _, err = (&inPlaceRun{InPlace: &InPlace{}, db: p.db, beside: p.table + "_migration"}).phase(p.t.Context())
		must(p.t, err)
	}
	old := p.key(p.table) == Layouts()["openflow"].key
	if old {
		items, err := scan(p.t.Context(), p.db, p.table)
		if err != nil && !raced(err) { // it is being deleted
			p.t.Fatal(err)
		}
		old = len(items) == len(oldRows)
	}
	whole := old
	if copyThere && now != filling {
		said, _ := p.leases(p.table + "_migration")
		whole = whole || said == oldRowsAsLeases
	}
	guarded := true
	if p.key(p.table) == leaseTable {
		var said string
		said, guarded = p.leases(p.table)
		whole = whole || said == oldRowsAsLeases
		guarded = guarded || said == oldRowsAsLeases || said == ""
	}
	if !whole || !guarded {
		p.t.Errorf("%s: positions complete somewhere: %t, workers kept from a part of them: %t; phase %q", when, whole, guarded, now)
	}
	if !old {
		p.backedUp()
	}
}

// killer ends a process at its nth request that is no mere look: before it was sent, or once it was carried
// out and not answered.
type killer struct {
	mu    sync.Mutex
	left  int
	after bool
	kill  context.CancelFunc
	last  string
}

var errKilled = errors.New("killed")

func (k *killer) RoundTrip(r *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	looks := action == "DescribeTable" || action == "GetItem" // these change nothing, and their number varies
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left > 0 && !looks {
		k.left--
	} else if k.left == 0 {
		return nil, errKilled
	}
	if k.left > 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	k.last = action
	if k.after {
		if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	k.kill()
	return nil, errKilled
}

// A process that is killed at any request leaves positions whole, and the next one
// finishes the work.
func TestInPlaceKilledAtEveryStep(t *testing.T) {
	endpoint := dynamotest.Dynalite(t)
	for _, after := range []bool{false, true} {
		name := map[bool]string{false: "before", true: "after"}[after]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := map[string]int{}
			for n := 1; ; n++ {
				p := newPlace(t, endpoint, fmt.Sprintf("%s-%d", name, n))
				ctx, cancel := context.WithCancel(t.Context())
				k := &killer{left: n, after: after, kill: cancel}
				err := p.migration(k).Run(ctx)
				cancel()
				if err == nil {
					p.done()
					break
				}
				if k.last == "" {
					t.Fatal(err)
				}
				seen[k.last]++
				when := fmt.Sprintf("killed %s request %d, %s", name, n, k.last)
				p.intact(when)
				if err := p.migration(nil).Run(t.Context()); err != nil {
					t.Fatalf("%s: the next call: %v", when, err)
				}
				p.done()
				if t.Failed() {
					t.Fatal(when)
				}
			}
			want := map[string]int{"CreateTable": 2, "DeleteTable": 2, "PutItem": 13, "UpdateItem": 3, "DeleteItem": 2, "Scan": 3}
			if !maps.Equal(seen, want) {
				t.Errorf("requests at which it was killed: %v, want %v", seen, want)
			}
		})
	}
}

// pauser stops a process right before its nth request of an action, until it is let go.
type pauser struct {
	mu      sync.Mutex
	action  string
	left    int
	reached chan struct{}
	goOn    chan struct{}
}

func newPauser(action string, n int) *pauser {
	return &pauser{action: action, left: n, reached: make(chan struct{}), goOn: make(chan struct{})}
}

func (p *pauser) RoundTrip(r *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	p.mu.Lock()
	stop := false
	if action == p.action {
		p.left--
		stop = p.left == 0
	}
	p.mu.Unlock()
	if stop {
		close(p.reached)
		<-p.goOn
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A process that stood still while another did everything destroys nothing when it goes
// on: above all not the new table, which it was about to delete as the old one.
func TestInPlaceLateProcess(t *testing.T) {
	endpoint := dynamotest.Moto(t)
	for _, x := range []struct {
		action string
		n      int
	}{
		{"Scan", 1}, {"CreateTable", 1}, {"PutItem", 1}, {"PutItem", 4}, {"UpdateItem", 1}, {"Scan", 2}, {"PutItem", 6}, {"DeleteTable", 1},
		{"UpdateItem", 2}, {"CreateTable", 2}, {"PutItem", 9}, {"Scan", 3}, {"PutItem", 11}, {"UpdateItem", 3}, {"DeleteItem", 1}, {"DeleteTable", 2},
	} {
		t.Run(fmt.Sprintf("%s %d", x.action, x.n), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, endpoint, fmt.Sprintf("late-%s-%d", x.action, x.n))
			late := newPauser(x.action, x.n)
			result := make(chan error, 1)
			go func() { result <- p.migration(late).Run(t.Context()) }()
			select {
			case <-late.reached:
			case err := <-result:
				t.Fatalf("it ended before: %v", err)
			}
			if err := p.migration(nil).Run(t.Context()); err != nil {
				t.Errorf("the fast one: %v", err)
			}
			p.done()
			close(late.goOn)
			err := <-result
			if said, guarded := p.leases(p.table); said != oldRowsAsLeases || guarded {
				t.Errorf("after the late one, which said %v: leases %s, workers kept out: %t", err, said, guarded)
			}
			if err != nil {
				t.Errorf("the late one: %v", err)
			}
			if p.key(p.table+"_migration") != "" {
				t.Error("the copy is there again")
			}
		})
	}
}

// oneByOne lets one request at a time through: moto's CreateTable looks for a table and
// makes it in two steps, so that two requests may both succeed and the second empties
// the table. DynamoDB refuses one.
type oneByOne struct{ mu sync.Mutex }

func (o *oneByOne) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// A process that is late with its part of the copy, and finds the new table made but not
// filled, leaves the copy: it holds the only positions there are.
func TestInPlaceLateWhileTheOtherCopies(t *testing.T) {
	p := newPlace(t, dynamotest.Moto(t), "copies")
	run := func(at *pauser) chan error {
		result := make(chan error, 1)
		go func() { result <- p.migration(at).Run(t.Context()) }()
		select {
		case <-at.reached:
		case err := <-result:
			t.Fatalf("it ended before: %v", err)
		}
		return result
	}
	late, fast := newPauser("PutItem", 4), newPauser("PutItem", 9) // the last of the copy; the guard of the new table
	lateResult, fastResult := run(late), run(fast)
	p.intact("the new table is empty")
	close(late.goOn)
	must(t, <-lateResult)
	p.done()
	close(fast.goOn)
	must(t, <-fastResult)
	p.done()
}

// Two at once end well.
func TestInPlaceTwoAtOnce(t *testing.T) {
	endpoint := dynamotest.Moto(t)
	server := &oneByOne{}
	for i := range 5 {
		p := newPlace(t, endpoint, fmt.Sprintf("both-%d", i))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := p.migration(server).Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.done()
	}
}

// staleTable describes a table as it was before it was made anew, for the first times
// that it is asked, as NIFI-16003 met it.
type staleTable struct {
	mu      sync.Mutex
	table   string
	old     []byte // the answer before
	made    bool
	times   int
	deletes int
}

func (s *staleTable) RoundTrip(r *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	r.Body = readCloser{bytes.NewReader(body.Bytes())}
	mine := strings.Contains(body.String(), `"`+s.table+`"`)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case mine && action == "CreateTable":
		s.made = true
	case mine && action == "DeleteTable":
		s.deletes++
	case mine && action == "DescribeTable" && s.made && s.times > 0:
		s.times--
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: readCloser{bytes.NewReader(s.old)}, ContentLength: int64(len(s.old)), Request: r}, nil
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && mine && action == "DescribeTable" && !s.made && resp.StatusCode == 200 {
		var answer bytes.Buffer
		if _, err := answer.ReadFrom(resp.Body); err != nil {
			return nil, err
		}
		resp.Body.Close()
		if s.old == nil {
			s.old = bytes.Clone(answer.Bytes())
		}
		resp.Header.Del("X-Amz-Crc32")
		resp.Body = readCloser{bytes.NewReader(answer.Bytes())}
	}
	return resp, err
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// What Openflow's own migration, which goes the other way, could lose positions by. Source:
// NIFI-16003, NIFI-16066 and LegacyCheckpointMigrator of Apache NiFi.
func TestInPlaceHazards(t *testing.T) {
	endpoint := dynamotest.Dynalite(t)
	t.Run("a table that was made anew is still described as the old one", func(t *testing.T) {
		p := newPlace(t, endpoint, "stale")
		s := &staleTable{table: "stale", times: 5}
		must(t, p.migration(s).Run(t.Context()))
		p.done()
		if s.deletes != 1 || s.times != 0 {
			t.Errorf("the table was deleted %d times, %d stale answers left", s.deletes, s.times)
		}
	})
	t.Run("a copy that was begun is not taken for whole", func(t *testing.T) {
		p := newPlace(t, endpoint, "begun")
		s, err := p.migration(nil).Make(t.Context(), "begun_migration", false)
		must(t, err)
		must(t, s.Create(t.Context(), lease.Lease{Key: "111122223333:orders:1700000000:d", Checkpoint: "200", Sub: Whole}))
		must(t, p.migration(nil).Run(t.Context()))
		p.done()
	})
	t.Run("an error leaves no lock behind", func(t *testing.T) {
		p := newPlace(t, endpoint, "lock")
		m := p.migration(nil)
		failed := errors.New("as told")
		m.Map = func(context.Context, []Row, []Fault) ([]lease.Lease, error) { return nil, failed }
		if err := m.Run(t.Context()); !errors.Is(err, failed) {
			t.Error(err)
		}
		must(t, p.migration(nil).Run(t.Context()))
		p.done()
	})
	t.Run("positions that moved after they were copied are not deleted", func(t *testing.T) {
		p := newPlace(t, endpoint, "moved")
		m := p.migration(nil)
		make := m.Make
		m.Make = func(ctx context.Context, table string, protected bool) (lease.Store, error) {
			it := item{"streamName": text("orders"), "shardId": text("d"), "sequenceNumber": text("300"), "lastUpdateTimestamp": num("1")}
			put(t, p.db, "moved", it)
			m.Backup = p.file + ".2"
			return make(ctx, table, protected)
		}
		if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "have moved") {
			t.Error(err)
		}
		if key := p.key("moved"); key != Layouts()["openflow"].key {
			t.Errorf("the table has the key %q", key)
		}
	})
	t.Run("its own migration of a KCL table", func(t *testing.T) {
		p := newPlace(t, endpoint, "nifi")
		makeTable(t, p.db, "nifi_migration", Layouts()["openflow"].key)
		if err := p.migration(nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "let it finish") {
			t.Error(err)
		}
		if p.key("nifi_migration") == "" || p.key("nifi") != Layouts()["openflow"].key {
			t.Error("a table is gone")
		}
	})
	t.Run("an unfinished copy beside a table that is gone is kept", func(t *testing.T) {
		p := newPlace(t, endpoint, "gone")
		_, err := p.migration(nil).Make(t.Context(), "gone_migration", false)
		must(t, err)
		_, err = p.db.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &p.table})
		must(t, err)
		if err := p.migration(nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "from the backup") {
			t.Error(err)
		}
		if p.key("gone_migration") == "" {
			t.Error("the copy is gone")
		}
	})
	t.Run("a copy that was begun beside a lease table is not deleted", func(t *testing.T) {
		p := newPlace(t, endpoint, "lefts")
		must(t, p.migration(nil).Run(t.Context()))
		_, err := p.migration(nil).Make(t.Context(), "lefts_migration", false)
		must(t, err)
		if err := p.migration(nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "never completed") {
			t.Error(err)
		}
		if p.key("lefts_migration") == "" {
			t.Error("the copy is gone")
		}
	})
	t.Run("a backup is never overwritten", func(t *testing.T) {
		p := newPlace(t, endpoint, "backup")
		must(t, os.WriteFile(p.file, []byte("precious"), 0o600))
		if err := p.migration(nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "holds something else") {
			t.Error(err)
		}
		if have, _ := os.ReadFile(p.file); string(have) != "precious" || p.key("backup_migration") != "" {
			t.Errorf("%s, and a copy: %q", have, p.key("backup_migration"))
		}
	})
	t.Run("a worker that began on the new table", func(t *testing.T) {
		p := newPlace(t, endpoint, "worker")
		m := p.migration(nil)
		make := m.Make
		m.Make = func(ctx context.Context, table string, protected bool) (lease.Store, error) {
			s, err := make(ctx, table, protected)
			if table == "worker" && err == nil {
				err = s.Create(ctx, lease.Lease{Key: "111122223333:orders:1700000000:d", Checkpoint: lease.TrimHorizon})
			}
			return s, err
		}
		if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "a worker has begun") {
			t.Error(err)
		}
		if said, _ := p.leases("worker_migration"); said != oldRowsAsLeases {
			t.Errorf("the copy: %s", said)
		}
	})
}

// A backup line is an item as the AWS CLI takes it, whatever it holds.
func TestBackup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.jsonl")
	it := item{
		"s": text("\u00e9\n"), "n": num("1.5"), "b": &types.AttributeValueMemberB{Value: []byte{1, 2}}, "z": &types.AttributeValueMemberNULL{Value: true},
		"t": &types.AttributeValueMemberBOOL{Value: false}, "ss": &types.AttributeValueMemberSS{Value: []string{"b", "a"}}, "ns": &types.AttributeValueMemberNS{Value: []string{"2", "1"}},
		"bs": &types.AttributeValueMemberBS{Value: [][]byte{{3}}}, "l": &types.AttributeValueMemberL{Value: []types.AttributeValue{num("1")}},
		"m": &types.AttributeValueMemberM{Value: item{"k": text("v")}},
	}
	must(t, backUp(file, []item{it}))
	must(t, backUp(file, []item{it})) // the same once more
	have, err := os.ReadFile(file)
	must(t, err)
	want := `{"b":{"B":"AQI="},"bs":{"BS":["Aw=="]},"l":{"L":[{"N":"1"}]},"m":{"M":{"k":{"S":"v"}}},"n":{"N":"1.5"},"ns":{"NS":["1","2"]},"s":{"S":"` + "\u00e9" + `\n"},"ss":{"SS":["a","b"]},"t":{"BOOL":false},"z":{"NULL":true}}` + "\n"
	if string(have) != want {
		t.Errorf("%s\nwant %s", have, want)
	}
	if left, _ := filepath.Glob(file + ".part-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
