package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/kinesis/kinesistest/npmserver"
)

// TestMovies loads records that somebody else wrote from a server that somebody else
// wrote, by the commands that a user has, and compares every value. The Title of
// some movies is a number, so under "allow" the column becomes JSON, and under
// "refuse" those of one kind are dead letters.
func TestMovies(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages of npm: every value of vega-datasets' movies.json through kinesis-local")
	}
	file := filepath.Join(npmserver.Package(t, "vega-datasets", "3.2.1"), "data", "movies.json")
	endpoint := npmserver.KinesisLocal(t)
	movies := readMovies(t, file)
	createStream(t, endpoint, "movies", 3)
	t.Chdir(t.TempDir())

	code, stdout, stderr := kinetlWith("", "put", "movies", file, "--array", "--key", "Title", "--endpoint", endpoint)
	if want := fmt.Sprintf("%d records put into stream movies", len(movies)); code != exitDone || !strings.HasPrefix(stdout, want) {
		t.Fatalf("put: exit code %d, %s%s", code, stdout, stderr)
	}
	for _, typeChanges := range []string{"allow", "refuse"} {
		t.Run(typeChanges, func(t *testing.T) {
			database := typeChanges + ".duckdb"
			writeFile(t, typeChanges+".yaml", fmt.Sprintf(moviesDocuments, endpoint, database, typeChanges))
			for run := range 2 { // the second adds nothing
				if code, _, stderr := kinetlWith("", "run", "--once", typeChanges+".yaml"); code != exitDone {
					t.Fatalf("run %d: exit code %d: %s", run, code, stderr)
				}
			}
			checkMovies(t, database, movies, typeChanges == "refuse")
		})
	}
}

const moviesDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: movies }
spec: { connector: kinesis, config: { endpoint: %q, streams: [movies], readShare: 1 } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: file }
spec: { connector: duckdb, config: { path: %q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: movies-%[3]s }
spec:
  source: { name: movies }
  destination: { name: file, typeChanges: %[3]s }
  batch: { rows: 300 }
`

// readMovies is each movie's JSON on one line, as put sends it.
func readMovies(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	movies := make([]string, len(raw))
	for i, r := range raw {
		var line bytes.Buffer
		if err := json.Compact(&line, r); err != nil {
			t.Fatal(err)
		}
		movies[i] = line.String()
	}
	if len(movies) < 3000 {
		t.Fatalf("%s holds only %d movies", file, len(movies))
	}
	return movies
}

func createStream(t *testing.T, endpoint, name string, shards int32) {
	t.Helper()
	client, err := kinesisClient(t.Context(), &awsconf.Settings{Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateStream(t.Context(), &awskinesis.CreateStreamInput{StreamName: &name, ShardCount: aws.Int32(shards)}); err != nil {
		t.Fatal(err)
	}
	waiter := awskinesis.NewStreamExistsWaiter(client, func(o *awskinesis.StreamExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 20*time.Millisecond, 100*time.Millisecond
	})
	if err := waiter.Wait(t.Context(), &awskinesis.DescribeStreamInput{StreamName: &name}, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// checkMovies wants each movie once: as a row, or as a dead letter with its bytes.
func checkMovies(t *testing.T, database string, movies []string, refused bool) {
	t.Helper()
	missing := map[string]int{} // by content, since there are movies without a name of their own
	inputs := map[string]bool{}
	for _, m := range movies {
		missing[contentOfJSON(t, m)]++
		inputs[m] = true
	}
	rows, ids := tableRows(t, database)
	dead := deadPayloads(t, database)
	for _, row := range rows {
		missing[content(row)]--
	}
	for _, payload := range dead {
		if !inputs[payload] {
			t.Errorf("dead letter %s is no movie that was put", payload)
		}
		missing[contentOfJSON(t, payload)]--
	}
	wrong := 0
	for _, movie := range slices.Sorted(maps.Keys(missing)) {
		if n := missing[movie]; n != 0 {
			if wrong++; wrong <= 5 {
				t.Errorf("stored %d times too few: %s", n, movie)
			}
		}
	}
	if len(rows)+len(dead) != len(movies) || len(ids) != len(rows) || wrong != 0 {
		t.Errorf("%d movies: %d rows with %d ids, %d dead letters, %d wrong", len(movies), len(rows), len(ids), len(dead), wrong)
	}
	if refused != (len(dead) > 0) {
		t.Errorf("%d dead letters", len(dead))
	}
	t.Logf("%d movies = %d rows + %d dead letters", len(movies), len(rows), len(dead))
}

// tableRows are the table's rows by column, NULL left out, and their ids. It looks at
// text that DuckDB made, with none of kinetl's code between.
func tableRows(t *testing.T, database string) (rows []map[string]string, ids map[string]bool) {
	t.Helper()
	db, err := sql.Open("duckdb", database+"?access_mode=READ_ONLY")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var names, types, texts []string
	each(t, db, `SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'movies'`, func(r *sql.Rows) {
		var name, kind string
		if err := r.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		names, types = append(names, name), append(types, kind)
		texts = append(texts, fmt.Sprintf(`CAST("%s" AS VARCHAR)`, name))
	})
	ids = map[string]bool{}
	each(t, db, `SELECT `+strings.Join(texts, ", ")+` FROM movies`, func(r *sql.Rows) {
		cells, targets := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			targets[i] = &cells[i]
		}
		if err := r.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		row := map[string]string{}
		for i, c := range cells {
			switch {
			case names[i] == "_openetl_id":
				ids[c.String] = true
			case c.Valid && !strings.HasPrefix(names[i], "_kinesis_"):
				row[names[i]] = cellContent(t, types[i], c.String)
			}
		}
		rows = append(rows, row)
	})
	return rows, ids
}

// cellContent is a cell's content, whatever type holds it.
func cellContent(t *testing.T, kind, text string) string {
	t.Helper()
	switch kind {
	case "JSON":
		return jsonContent(t, json.RawMessage(text))
	case "VARCHAR":
		return "text " + text
	case "BIGINT", "DOUBLE":
		return numberContent(t, text)
	}
	t.Fatalf("a column of type %s", kind)
	return ""
}

// contentOfJSON is a record's content, null left out.
func contentOfJSON(t *testing.T, record string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(record), &fields); err != nil {
		t.Fatal(err)
	}
	cells := map[string]string{}
	for name, value := range fields {
		if string(value) != "null" {
			cells[name] = jsonContent(t, value)
		}
	}
	return content(cells)
}

func jsonContent(t *testing.T, value json.RawMessage) string {
	t.Helper()
	if value[0] != '"' {
		return numberContent(t, string(value))
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		t.Fatal(err)
	}
	return "text " + text
}

// numberContent is the exact value of a number as it is written.
func numberContent(t *testing.T, literal string) string {
	t.Helper()
	value, ok := new(big.Rat).SetString(literal)
	if !ok {
		t.Fatalf("%q is not a number", literal)
	}
	return "number " + value.RatString()
}

func content(cells map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cells)) {
		fmt.Fprintf(&b, "%q: %q\n", name, cells[name])
	}
	return b.String()
}

func deadPayloads(t *testing.T, database string) (payloads []string) {
	t.Helper()
	db, err := sql.Open("duckdb", database+"?access_mode=READ_ONLY")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	each(t, db, `SELECT payload FROM movies_dead_letters`, func(r *sql.Rows) {
		var payload []byte
		if err := r.Scan(&payload); err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, string(payload))
	})
	return payloads
}
