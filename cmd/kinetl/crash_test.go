package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease/dynamolease/dynamotest"
)

var kills = flag.Int("kills", 5, "how often each part of TestCrashLoop kills the program")

// TestCrashLoop: the program is killed again and again while records are put and
// the stream is split and merged; the table then holds every record once, in order.
// It is the real binary, a real database and SIGKILL; most kills are aimed at the
// middle of a commit, an ALTER or a checkpoint, and the log tells which they hit.
func TestCrashLoop(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("starts and kills processes, which the race detector does not see into")
	}
	program := buildProgram(t)
	t.Run("duckdb", func(t *testing.T) { crashDuckDB(t, program) })
	t.Run("postgres", func(t *testing.T) { crashPostgres(t, program) })
}

// crashDuckDB has one worker, which is started, killed, and started again.
func crashDuckDB(t *testing.T, program string) {
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.CreateStream("crash", 2); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	documents, database := filepath.Join(folder, "pipeline.yaml"), filepath.Join(folder, "crash.duckdb")
	writeFile(t, documents, fmt.Sprintf(crashDocuments, server.URL(), "",
		fmt.Sprintf("duckdb, config: { path: %q }", database), fmt.Sprintf("store: sqlite, path: %q", filepath.Join(folder, "leases.db"))))
	s := &scene{program: program, server: server, env: os.Environ()}
	producer := newProducer(server)
	producer.while(t, func(rng *rand.Rand) {
		killLoop(t, rng, func() *victim { return newVictim(t, s.command(documents, logPhases...)) })
	})
	s.finish(t, documents)
	db, err := sql.Open("duckdb", database+"?access_mode=READ_ONLY")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	producer.check(t, "rowid", func(query string, row func(scan)) {
		each(t, db, query, func(rows *sql.Rows) { row(rows.Scan) })
	})
}

// crashPostgres has three workers that share the stream and the table. One at a time
// is killed, while the others go on, and started again.
func crashPostgres(t *testing.T, program string) {
	s := newScene(t, program)
	s.createStreams(t, 6, "crash")
	documents := filepath.Join(t.TempDir(), "pipeline.yaml")
	writeFile(t, documents, fmt.Sprintf(crashDocuments, s.server.URL(), "\n  recordMetadata: object",
		"postgres, config: { url: { env: FLEET_DSN } }", fmt.Sprintf("store: dynamodb, failover: 3s, aws: { endpoint: %q }", dynamotest.Dynalite(t))))
	table := order{dsn: s.dsn, records: `SELECT k, n FROM crash UNION ALL
		SELECT substring(text from '"k":"([^"]*)"'), substring(text from '"n":([0-9]+)')::bigint
		FROM (SELECT convert_from(payload, 'UTF8') AS text FROM crash_dead_letters) d`}
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() { table.watch(ctx, t) })
	workers := make([]*victim, 3)
	producer := newProducer(s.server)
	producer.while(t, func(rng *rand.Rand) {
		dead := 0
		for i := 1; i < len(workers); i++ {
			workers[i] = newVictim(t, s.command(documents, logPhases...))
		}
		killLoop(t, rng, func() *victim {
			workers[dead] = newVictim(t, s.command(documents, logPhases...))
			dead = rng.IntN(len(workers))
			return workers[dead]
		})
		workers = slices.Delete(workers, dead, dead+1)
	})
	for _, w := range workers {
		w.stop(t, syscall.SIGTERM)
	}
	s.finish(t, documents)
	stop()
	looking.Wait()
	conn, err := pgx.Connect(t.Context(), s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	// Rows of different workers lie in any order, but sort as the records do.
	producer.check(t, "kinesisMetadata->>'shardedSequenceNumber'", func(query string, row func(scan)) {
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			row(rows.Scan)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d looks at the table meanwhile", table.looks)
	if table.looks == 0 {
		t.Error("that the table was in order at every moment is not proven")
	}
}

const crashDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: crash }
spec: { connector: kinesis, config: { region: us-east-1, endpoint: %[1]q, streams: [crash], readShare: 1 } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: table }
spec: { connector: %[3]s }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: crash }
spec:
  source: { name: crash }
  destination: { name: table, typeChanges: allow }
  batch: { rows: 500, age: 100ms }%[2]s
  leases: { %[4]s }
`

// killLoop kills the workers that next returns, and wants many to die in the middle of
// something.
func killLoop(t *testing.T, rng *rand.Rand, next func() *victim) {
	t.Helper()
	hit := map[string]int{}
	for i := range *kills {
		aim := []string{"insert", "commit", "alter", "commit", "watermarks", ""}[i%6]
		phase := next().shoot(t, rng, aim)
		hit[phase]++
		t.Logf("kill %d: aimed at %q, hit %q", i+1, aim, phase)
	}
	inside := 0
	for phase, n := range hit {
		if phase != "committed" && phase != "idle" {
			inside += n
		}
	}
	t.Logf("%d of %d kills were inside a transaction or a checkpoint: %v", inside, *kills, hit)
	if inside*5 < *kills*2 {
		t.Errorf("only %d of %d kills hit the middle of something", inside, *kills)
	}
}

// logPhases makes the program log what a victim reads.
var logPhases = []string{"--log-level", "debug", "--log-format", "json"}

// victim is a worker that is killed at a phase of its destination's calls.
type victim struct {
	*background

	mu    sync.Mutex
	phase string // the last one that was logged
	aim   string // the one to kill it at,
	left  int    // when it has come so often; 0: it is not aimed at
}

func newVictim(t *testing.T, cmd *exec.Cmd) *victim {
	t.Helper()
	v := &victim{phase: "idle"}
	v.background = launch(t, cmd, v.follow)
	return v
}

// follow reads a line of the log.
func (v *victim) follow(line []byte) {
	var entry struct{ Phase string }
	if json.Unmarshal(line, &entry) != nil || entry.Phase == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.phase = entry.Phase
	if v.left > 0 && v.phase == v.aim {
		if v.left--; v.left == 0 {
			_ = v.cmd.Process.Kill() // it may have died by then
		}
	}
}

// shoot kills the worker when it logs the phase aimed at for the n-th time from now, or
// after a while, and returns the last phase that it logged.
func (v *victim) shoot(t *testing.T, rng *rand.Rand, aim string) string {
	t.Helper()
	v.mu.Lock()
	v.aim, v.left = aim, 1+rng.IntN(4)
	v.mu.Unlock()
	patience := 6 * time.Second // of a fleet's workers not each has such a phase soon
	if aim == "" {
		patience = time.Duration(300+rng.IntN(2500)) * time.Millisecond
	}
	deadline := time.AfterFunc(patience, func() { _ = v.cmd.Process.Kill() })
	defer deadline.Stop()
	v.killed(t)
	return v.phase
}

// producer puts numbered records, and reshards the stream, until it is stopped.
type producer struct {
	server *kinesistest.Server
	rng    *rand.Rand
	perKey map[string]int
	keys   []string // of each record put, by id
	broken map[int]bool
}

func newProducer(server *kinesistest.Server) *producer {
	return &producer{server: server, rng: rand.New(rand.NewPCG(1, 1)), perKey: map[string]int{}, broken: map[int]bool{}}
}

// while puts records for as long as do takes.
func (p *producer) while(t *testing.T, do func(rng *rand.Rand)) {
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	defer running.Wait()
	defer stop()
	do(rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)))
}

func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range 20 {
			p.put()
		}
		if n%150 == 149 {
			p.reshard()
		}
	}
}

// put puts one record, or an aggregate of up to five, of one key.
func (p *producer) put() {
	key := fmt.Sprintf("key-%d", p.rng.IntN(50))
	records := []kinesis.AggregateRecord{{PartitionKey: key, Data: p.payload(key)}}
	if p.rng.IntN(10) == 0 {
		for range p.rng.IntN(5) {
			records = append(records, kinesis.AggregateRecord{PartitionKey: key, Data: p.payload(key)})
		}
	}
	data := records[0].Data
	if len(records) > 1 {
		data = kinesis.Aggregate(records)
	}
	if _, _, err := p.server.Put("crash", key, data); err != nil {
		panic(err)
	}
}

// payload names itself; every few thousand records a field appears or widens, so
// that kills meet an ALTER.
func (p *producer) payload(key string) []byte {
	id := len(p.keys)
	text := fmt.Sprintf(`{"id":%d,"k":%q,"n":%d,"text":"%030d"`, id, key, p.perKey[key], id)
	text += fmt.Sprintf(`,"f%d":%s`, id/1500, []string{"1", "2.5", `"x"`, "12345678901234567890"}[id%1500/400%4])
	text += "}"
	if p.rng.IntN(500) == 0 {
		text = text[:len(text)-1]
		p.broken[id] = true
	}
	p.perKey[key]++
	p.keys = append(p.keys, key)
	return []byte(text)
}

func (p *producer) reshard() {
	open, err := p.server.Shards("crash")
	if err != nil {
		panic(err)
	}
	// A refused split or merge (a closed shard, not adjacent) is as good as none.
	if len(open) > 1 && p.rng.IntN(2) == 0 {
		_, _ = p.server.Merge("crash", open[len(open)-2], open[len(open)-1])
	} else {
		_, _ = p.server.Split("crash", open[len(open)-1-p.rng.IntN(min(2, len(open)))])
	}
}

// scan sets variables to the columns of a row.
type scan func(columns ...any) error

// check compares what was put with the table, whose rows are in order when they are
// ordered by this.
func (p *producer) check(t *testing.T, by string, query func(text string, row func(scan))) {
	t.Helper()
	seen := map[int]int{}
	last := map[string]int{}
	query("SELECT id, k, n FROM crash ORDER BY "+by, func(scan scan) {
		var id, n int
		var key string
		if err := scan(&id, &key, &n); err != nil {
			t.Fatal(err)
		}
		seen[id]++
		if before, ok := last[key]; ok && n <= before {
			t.Errorf("R30: record %d of %s comes after record %d", n, key, before)
		}
		last[key] = n
	})
	query("SELECT payload FROM crash_dead_letters", func(scan scan) {
		var payload []byte
		if err := scan(&payload); err != nil {
			t.Fatal(err)
		}
		var id int
		if _, err := fmt.Sscanf(string(payload), `{"id":%d`, &id); err != nil || !p.broken[id] {
			t.Errorf("dead letter %q is not one of the broken records", payload)
		}
		seen[id]++
	})
	wrong := 0
	for id := range p.keys {
		if seen[id] != 1 {
			if wrong++; wrong < 10 {
				t.Errorf("record %d is stored %d times", id, seen[id])
			}
		}
	}
	t.Logf("%d records put, %d stored, %d of them dead letters, %d wrong", len(p.keys), len(seen), len(p.broken), wrong)
}

func each(t *testing.T, db *sql.DB, query string, f func(*sql.Rows)) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		f(rows)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
