package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kinetl/kinetl/httpapi"
)

// A scheduled pipeline whose run fails is run again at its next time: it stays
// resident.
func TestScheduledRunFails(t *testing.T) {
	folder := t.TempDir()
	documents := filepath.Join(folder, "pipeline.yaml")
	writeFile(t, documents, strings.ReplaceAll(scheduledDocuments, "FOLDER", folder))
	plans, err := loadPlans([]string{documents}, "")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &runner{logger: slog.New(slog.NewTextHandler(&log, nil)), progress: newProgress(&log), api: httpapi.New()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.runPlan(ctx, plans[0]) }()
		time.Sleep(3 * time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
		if n := strings.Count(log.String(), `msg="the run failed" pipeline=hourly`); n != 3 {
			t.Errorf("%d runs failed in three hours: %s", n, log.String())
		}
	})
	if _, err := os.Stat(filepath.Join(folder, "leases.db")); err != nil {
		t.Error(err)
	}
}

const scheduledDocuments = `
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: hourly }
spec: { connector: kinesis, config: { endpoint: "http://127.0.0.1:1", streams: [hourly] } }
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: file }
spec: { connector: duckdb, config: { path: FOLDER/hourly.duckdb } }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: hourly }
spec:
  mode: scheduled
  schedule: "30 * * * *"
  source: { name: hourly }
  destination: { name: file }
  leases: { store: sqlite, path: FOLDER/leases.db }
`
