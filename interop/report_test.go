//go:build interop

package interop

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var resultsFile = flag.String("results", "", "file to write the results to, when every test passed")

var (
	resultsMu sync.Mutex
	results   []result
)

// report notes what a scenario that passed came to.
func report(t *testing.T, res result) {
	t.Logf("%+v", res)
	if t.Failed() {
		return
	}
	resultsMu.Lock()
	defer resultsMu.Unlock()
	results = append(results, res)
}

func TestMain(m *testing.M) {
	flag.Parse()
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Fprintf(os.Stderr, "%s is missing: the real KCL can't be run; install a JDK (17 or later) and Maven\n", tool)
			os.Exit(1)
		}
	}
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path)) // a folder of the system's for such things
	}
	slices.SortFunc(results, func(a, b result) int {
		return cmp.Or(strings.Compare(a.Scenario, b.Scenario), strings.Compare(a.Versions, b.Versions))
	})
	text := resultsTable()
	fmt.Print("\n", text)
	if *resultsFile != "" && code == 0 {
		if err := os.WriteFile(*resultsFile, []byte(resultsHead()+text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func resultsHead() string {
	java, _ := exec.Command("java", "-version").CombinedOutput()
	version, _, _ := strings.Cut(string(java), "\n")
	return fmt.Sprintf(`# Interoperation with the Kinesis Client Library

Written by %s on %s: %s, %s, dynalite 4.0.0 for KCL 2, moto 5.2.1 for KCL 3, failover %v.
Kinesis is kinesistest; KCL polls it in CBOR. A gap is a record that neither side reported, a repeat each
report of a record beyond its first, disorder a report that came before one that it should
have followed. Every third stream record is an aggregate of four; the checkpoints that are
taken over lie within aggregates, too. Records that KCL read go where KCL sends them, and
are not in kinetl's table.

`, "`make interop`", time.Now().UTC().Format(time.DateOnly), runtime.Version(), strings.TrimSpace(version), failover)
}

func resultsTable() string {
	var b strings.Builder
	b.WriteString("| scenario | version | records | by KCL | by kinetl | gaps | repeats | disorder | took | |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %v | %s |\n",
			r.Scenario, r.Versions, r.Records, r.KCL, r.Kinetl, r.Gaps, r.Repeats, r.Disorder, r.Took.Round(time.Second), r.Note)
	}
	return b.String()
}
