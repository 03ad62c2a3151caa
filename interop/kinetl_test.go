//go:build interop

package interop

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2"
)

const documents = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: source }
spec: { connector: kinesis, config: { region: us-east-1, endpoint: %[1]q, streams: [%[2]s], readShare: 1 } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: local }
spec: { connector: duckdb, config: { path: %[3]q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: interop }
spec:
  application: %[4]s
  source: { name: source }
  destination: { name: local, table: rows }
  batch: { rows: 50, age: 300ms }
  memory: 128MiB
  leases: { store: dynamodb, failover: %[5]s, aws: { region: us-east-1, endpoint: %[6]q } }
`

// loader is `kinetl run`, a process.
type loader struct {
	cmd  *exec.Cmd
	log  string
	once sync.Once
}

var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "kinetl-interop-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "kinetl")
	if out, err := exec.Command("go", "build", "-tags", "duckdb_arrow", "-o", path, "../cmd/kinetl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kinetl: %w\n%s", err, out)
	}
	return path, nil
})

// startKinetl starts `kinetl run` with more arguments. It dies with the test.
func (w *world) startKinetl(args ...string) *loader {
	t := w.t
	t.Helper()
	path, err := program()
	must(t, err)
	file := filepath.Join(w.folder, "pipeline.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, documents, w.server.URL(), stream, w.duckDB(), table, failover, w.dynamo), 0o644))
	k := &loader{log: filepath.Join(w.folder, fmt.Sprintf("kinetl-%d.log", w.number()))}
	stderr, err := os.Create(k.log)
	must(t, err)
	defer stderr.Close()
	k.cmd = exec.Command(path, append(append([]string{"run"}, args...), file)...)
	k.cmd.Stderr = stderr
	k.cmd.SysProcAttr = dieWithParent()
	must(t, k.cmd.Start())
	t.Cleanup(func() {
		k.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("kinetl said: %s", tail(k.log))
		}
	})
	return k
}

// end sends a signal, waits, and returns the exit code; -1 after a kill.
func (k *loader) end(signal syscall.Signal) int {
	_ = k.cmd.Process.Signal(signal) // it may have ended by itself
	return k.wait()
}

// wait returns the exit code once the program has ended.
func (k *loader) wait() int {
	k.once.Do(func() { _ = k.cmd.Wait() }) // the code is what counts
	return k.cmd.ProcessState.ExitCode()
}

// loadOnce runs kinetl to the tip.
func (w *world) loadOnce() {
	w.t.Helper()
	if code := w.startKinetl("--once").wait(); code != 0 {
		w.t.Fatalf("kinetl run --once: exit code %d", code)
	}
}

func (w *world) duckDB() string { return filepath.Join(w.folder, "rows.duckdb") }

// row is a row of kinetl's table, in the order in which it was stored.
type row struct {
	id         int
	shard, seq string
}

// rows are what kinetl has stored. No kinetl may be at work.
func (w *world) rows() (out []row) {
	t := w.t
	t.Helper()
	if _, err := os.Stat(w.duckDB()); err != nil {
		return nil
	}
	db, err := sql.Open("duckdb", w.duckDB())
	must(t, err)
	defer db.Close()
	var made bool // where kinetl refused to begin there is no table
	must(t, db.QueryRow("SELECT count(*) > 0 FROM duckdb_tables() WHERE table_name = 'rows'").Scan(&made))
	if !made {
		return nil
	}
	var dead int
	must(t, db.QueryRow("SELECT count(*) FROM rows_dead_letters").Scan(&dead))
	if dead > 0 {
		t.Errorf("%d dead letters", dead)
	}
	found, err := db.Query("SELECT id, _kinesis_shard, _kinesis_sequence FROM rows ORDER BY rowid")
	must(t, err)
	defer found.Close()
	for found.Next() {
		var r row
		must(t, found.Scan(&r.id, &r.shard, &r.seq))
		out = append(out, r)
	}
	must(t, found.Err())
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tail is the end of a log.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8000):])
}
