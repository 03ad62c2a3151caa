package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

// TestGettingStarted runs every command of docs/getting-started.md as it stands there,
// in an empty folder. Only the ports are others, and the program is this one.
func TestGettingStarted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	ports := strings.NewReplacer("127.0.0.1:4567", "127.0.0.1:"+freePort(t), "127.0.0.1:9400", "127.0.0.1:"+freePort(t))
	shown := blocks(ports.Replace(strings.ReplaceAll(string(text), "kinetl emulator", "kinetl emulator --addr 127.0.0.1:4567")), "sh")
	if len(shown) != 6 {
		t.Fatalf("the text has %d blocks of commands, this test knows 6", len(shown))
	}
	build, emulator, put, begin, load, keep := shown[0], shown[1], shown[2], shown[3], shown[4], shown[5]
	if build != "make build\nexport PATH=\"$PWD/bin:$PATH\"\n" {
		t.Errorf("the program is built by other commands than this test replaces: %s", build)
	}
	folder := t.TempDir()

	serving := startShell(t, folder, emulator)
	serving.await(t, "export AWS_REGION=")
	if out := shell(t, folder, put); !strings.Contains(out, "3 records put into stream orders") || strings.Count(out, `"total":`) != 3 {
		t.Errorf("put and tail print %s", out)
	}
	shell(t, folder, begin)
	document := filepath.Join(folder, "pipeline.yaml")
	pipeline, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Replace(string(pipeline), "# endpoint:", "endpoint:", 1)
	if said == string(pipeline) {
		t.Fatalf("there is no endpoint line to take the # from: %s", pipeline)
	}
	writeFile(t, document, ports.Replace(said))
	if out := shell(t, folder, load); !strings.Contains(out, "ok    orders: streams: 1 stream(s), 2 shard(s)") || !strings.Contains(out, "order  total\n") {
		t.Errorf("check, run and query print %s", out)
	}

	running := startShell(t, folder, keep)
	running.await(t, "serving health and metrics")
	shell(t, folder, put)
	running.await(t, "msg=progress records=3 rows=3 dead_letters=0")
	if out := shell(t, folder, "kinetl status pipeline.yaml"); !strings.Contains(out, "orders       2 ") {
		t.Errorf("status prints %s", out)
	}
	running.stop(t, os.Interrupt)
	serving.stop(t, os.Interrupt)
	if out := shell(t, folder, `kinetl query --json orders.duckdb 'SELECT count(*) AS n, sum(total) AS total FROM orders'`); out != `{"n":6,"total":15}`+"\n" {
		t.Errorf("the table holds %s", out)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// strangersShell runs commands for somebody who has no AWS configuration.
func strangersShell(folder, script string) *exec.Cmd {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder}
	return cmd
}

// shell runs commands to their end and returns what they print on stdout.
func shell(t *testing.T, folder, script string) string {
	t.Helper()
	cmd := strangersShell(folder, script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s%v: %s", script, err, stderr.String())
	}
	return string(out)
}

func startShell(t *testing.T, folder, script string) *background {
	t.Helper()
	return launch(t, strangersShell(folder, "exec "+script), nil)
}

// examples says how each document of examples/ that runs without AWS is tried.
var examples = map[string]struct {
	streams  []string
	records  map[string][]string // by stream
	database string
	query    string
	want     string
}{
	"emulator.yaml": {
		streams:  []string{"orders"},
		records:  map[string][]string{"orders": {`{"order":1,"total":9.5}`, `{"order":2,"total":0.1}`}},
		database: "orders.duckdb",
		query:    `SELECT "order", total FROM orders ORDER BY ALL`,
		want:     `{"order":1,"total":9.5}` + "\n" + `{"order":2,"total":0.1}`,
	},
	"scheduled.yaml": {
		streams:  []string{"clicks-web", "clicks-app", "other"},
		records:  map[string][]string{"clicks-web": {`{"n":1}`}, "clicks-app": {`{"n":2}`}, "other": {`{"n":3}`}},
		database: "clicks.duckdb",
		query:    `SELECT n, _kinesis_stream AS s FROM clicks ORDER BY ALL`,
		want:     `{"n":1,"s":"clicks-web"}` + "\n" + `{"n":2,"s":"clicks-app"}`,
	},
	"allow-type-changes.yaml": {
		streams:  []string{"events"},
		records:  map[string][]string{"events": {`{"v":1}`, `{"v":"two"}`, `{"v":[3]}`}},
		database: "events.duckdb",
		query:    `SELECT CAST(v AS VARCHAR) AS v, kinesisMetadata.partitionKey AS k FROM raw.all_events ORDER BY ALL`,
		want:     `{"v":"\"two\"","k":"k"}` + "\n" + `{"v":"1","k":"k"}` + "\n" + `{"v":"[3]","k":"k"}`,
	},
}

// TestExamples: every document of examples/ is valid, and does what it says, twice.
// Those for services that can't be had here are checked only.
func TestExamples(t *testing.T) {
	files := exampleFiles(t)
	elsewhere := map[string]bool{"kinesis-duckdb.yaml": true, "kinesis-snowflake-cross-account.yaml": true, "fleet-postgres.yaml": true} // TestEveryCallIsSignedByItsIdentity and TestChaos run the like of the last
	for path := range files {
		name := filepath.Base(path)
		absolute, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			if code, _, stderr := kinetlWith("", "check", "--offline", path); code != exitDone {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			e, ok := examples[name]
			if !ok && !elsewhere[name] {
				t.Fatal("it is not tried: say in this test how")
			}
			if !ok {
				return
			}
			server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			for _, stream := range e.streams {
				if err := server.CreateStream(stream, 1); err != nil {
					t.Fatal(err)
				}
				for _, r := range e.records[stream] {
					if _, _, err := server.Put(stream, "k", []byte(r)); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Chdir(t.TempDir())
			t.Setenv("KINESIS_ENDPOINT", server.URL())
			for range 2 {
				if code, _, stderr := kinetlWith("", "run", "--once", absolute); code != exitDone {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
			}
			code, stdout, stderr := kinetlWith("", "query", "--json", e.database, e.query)
			if want := e.want + "\n"; code != exitDone || stdout != want {
				t.Errorf("%s\nprints %s%s\nwant %s", e.query, stdout, stderr, want)
			}
		})
	}
	for name := range examples {
		if _, ok := files[filepath.Join(repository, "examples", name)]; !ok {
			t.Errorf("examples/%s is gone", name)
		}
	}
}
