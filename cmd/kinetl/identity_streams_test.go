package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// Two streams of one source, in an account each: each stream is described, listed and
// read under its own role, and never under the other's.
func TestEachStreamIsReadByItsIdentity(t *testing.T) {
	stream, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for _, name := range []string{"orders", "returns", "visits"} {
		if err := stream.CreateStream(name, 2); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if _, _, err := stream.Put(name, fmt.Sprint(i), fmt.Appendf(nil, `{"id":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	signers := &signers{by: map[string][]string{}}
	// An address for each, by which the test tells the calls for one stream from the others'.
	ways := map[string]string{}
	for _, name := range []string{"orders", "returns", "visits"} {
		ways[name] = signers.before(t, name, stream.URL())
	}
	t.Setenv("AWS_ENDPOINT_URL_STS", signers.sts(t))
	t.Setenv("AWS_ACCESS_KEY_ID", "OWNIDENTITY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "own")
	t.Setenv("VISITS_KEY", "VISITSIDENTITY")
	t.Setenv("VISITS_SECRET", "visits")
	folder := t.TempDir()
	documents := filepath.Join(folder, "pipeline.yaml")
	writeFile(t, documents, fmt.Sprintf(streamIdentityDocuments, ways["orders"], ways["returns"], ways["visits"], filepath.Join(folder, "t.duckdb"), filepath.Join(folder, "l.db")))
	for _, command := range [][]string{{"check"}, {"run", "--once"}} {
		signers.forget()
		var out bytes.Buffer
		if code := execute(t.Context(), append(command, documents), nil, &out, &out); code != exitDone {
			t.Fatalf("%s: exit %d: %s", command, code, out.String())
		}
		signers.want(t, "orders", "ASSUMED222233334444 in eu-central-1 for kinesis")
		signers.want(t, "returns", "ASSUMED333344445555 in eu-central-1 for kinesis")
		signers.want(t, "visits", "VISITSIDENTITY in eu-central-1 for kinesis")
		signers.want(t, "sts", "OWNIDENTITY")
	}
	db, err := sql.Open("duckdb", filepath.Join(folder, "t.duckdb"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, name := range []string{"orders", "returns", "visits"} {
		var rows int
		if err := db.QueryRow("SELECT count(*) FROM " + name).Scan(&rows); err != nil || rows != 10 {
			t.Errorf("%s: %d rows of 10: %v", name, rows, err)
		}
	}
}

const streamIdentityDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: s }
spec:
  connector: kinesis
  aws: { role: { arn: "arn:aws:iam::222233334444:role/reader", externalId: kinetl } }
  config:
    region: eu-central-1
    endpoint: %q
    streams: [orders, returns, visits]
    streamAws:
      - { stream: returns, endpoint: %q, role: "arn:aws:iam::333344445555:role/reader" }
      - { stream: visits, endpoint: %q, accessKeyId: { env: VISITS_KEY }, secretAccessKey: { env: VISITS_SECRET } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: d }
spec: { connector: duckdb, config: { path: %q } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: p }
spec: { source: { name: s }, destination: { name: d }, leases: { path: %q } }
`
