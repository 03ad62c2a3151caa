package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

var kills = flag.Int("kills", 5, "how often TestCrashLoop kills the program")

// TestCrashLoop: the program is killed again and again while records are put and
// the stream is split and merged; the table then holds every record once, in order.
// It is the real binary, the real DuckDB and SIGKILL; most kills are aimed at the
// middle of a commit, an ALTER or a checkpoint, and the log tells which they hit.
func TestCrashLoop(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("starts and kills processes, which the race detector does not see into")
	}
	folder := t.TempDir()
	program := filepath.Join(folder, "kinetl")
	if out, err := exec.Command("go", "build", "-tags", "duckdb_arrow", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.CreateStream("crash", 2); err != nil {
		t.Fatal(err)
	}
	documents := filepath.Join(folder, "pipeline.yaml")
	writeFile(t, documents, fmt.Sprintf(crashDocuments, server.URL(), filepath.Join(folder, "crash.duckdb"), filepath.Join(folder, "leases.db")))

	producer := newProducer(server)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { producer.run(ctx) })
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	hit := map[string]int{}
	for i := range *kills {
		aim := []string{"insert", "commit", "alter", "commit", "watermarks", ""}[i%6]
		phase := crash(t, rng, program, documents, aim)
		hit[phase]++
		t.Logf("kill %d: aimed at %q, hit %q", i+1, aim, phase)
	}
	stop()
	wg.Wait()
	inside := 0
	for phase, n := range hit {
		if phase != "" && phase != "committed" && phase != "idle" {
			inside += n
		}
	}
	t.Logf("%d of %d kills were inside a transaction or a checkpoint: %v", inside, *kills, hit)
	if inside*5 < *kills*2 {
		t.Errorf("only %d of %d kills hit the middle of something", inside, *kills)
	}
	last := exec.Command(program, "run", "--once", documents)
	if out, err := last.CombinedOutput(); err != nil {
		t.Fatalf("the last run: %v\n%s", err, tail(string(out)))
	}
	producer.check(t, filepath.Join(folder, "crash.duckdb"))
}

const crashDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: crash }
spec: { connector: kinesis, config: { region: us-east-1, endpoint: %q, streams: ["crash"], readShare: 1 } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: file }
spec: { connector: duckdb, config: { path: %q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: crash }
spec:
  source: { name: crash }
  destination: { name: file, typeChanges: allow }
  batch: { rows: 500, age: 100ms }
  leases: { store: sqlite, path: %q }
`

// crash runs the program, kills it when it logs the phase aimed at for the n-th
// time, or after a random while, and returns the last phase that it logged.
func crash(t *testing.T, rng *rand.Rand, program, documents, aim string) string {
	t.Helper()
	cmd := exec.Command(program, "run", "--log-level", "debug", "--log-format", "json", documents)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	countdown := 1 + rng.IntN(4)
	kill := sync.OnceFunc(func() { _ = cmd.Process.Kill() }) // it may have died by then
	deadline := time.AfterFunc(time.Duration(300+rng.IntN(2500))*time.Millisecond, kill)
	defer deadline.Stop()
	phase := "idle"
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		var entry struct{ Msg, Phase string }
		if json.Unmarshal(lines.Bytes(), &entry) != nil || entry.Msg != "duckdb" {
			continue
		}
		phase = entry.Phase
		if phase == aim {
			if countdown--; countdown == 0 {
				kill()
			}
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the program ended by itself: %v\n%s", err, tail(strings.Join(seen, "\n")))
	}
	return phase
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
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

// check compares the table with what was put.
func (p *producer) check(t *testing.T, path string) {
	db, err := sql.Open("duckdb", path+"?access_mode=READ_ONLY")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	seen := map[int]int{}
	last := map[string]int{}
	each(t, db, `SELECT id, k, n FROM crash ORDER BY rowid`, func(rows *sql.Rows) {
		var id, n int
		var key string
		if err := rows.Scan(&id, &key, &n); err != nil {
			t.Fatal(err)
		}
		seen[id]++
		if before, ok := last[key]; ok && n <= before {
			t.Errorf("R30: record %d of %s comes after record %d", n, key, before)
		}
		last[key] = n
	})
	each(t, db, `SELECT payload FROM crash_dead_letters`, func(rows *sql.Rows) {
		var payload []byte
		if err := rows.Scan(&payload); err != nil {
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
