// Package npmserver starts the Kinesis servers that npm has, as second opinions
// for tests: what kinesistest answers is compared with what they answer.
//
// The packages are pinned in npm/package.json and installed once into
// $KINETL_CACHE/npm, by default .cache/npm beside go.mod. Where node or npm is
// missing, or the packages can't be had, the test is skipped and says what it left out.
package npmserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed npm
var files embed.FS

const (
	installTimeout = 3 * time.Minute
	startTimeout   = 30 * time.Second
)

// KinesisLocal starts kinesis-local 0.6.2 on 127.0.0.1 and returns its plain-HTTP
// endpoint. Changes of streams take 20 ms. It ends with the test.
func KinesisLocal(t testing.TB) (endpoint string) {
	t.Helper()
	dir := install(t, "kinesis-local 0.6.2")
	plain, secure := freePort(t), freePort(t)
	cmd := exec.Command("node", "-r", filepath.Join(dir, "loopback.js"), "main.js")
	cmd.Dir = filepath.Join(dir, "node_modules", "kinesis-local") // it looks for its certificate here
	cmd.Env = append(os.Environ(),
		"AWS_ACCOUNT_ID=000000000000", "AWS_REGION=us-east-1", "LOG_LEVEL=ERROR", "SHARD_LIMIT=1000",
		"KINESIS_MOCK_PLAIN_PORT="+plain, "KINESIS_MOCK_TLS_PORT="+secure)
	for _, change := range []string{"CREATE_STREAM", "DELETE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS", "UPDATE_SHARD_COUNT", "REGISTER_STREAM_CONSUMER", "DEREGISTER_STREAM_CONSUMER", "UPDATE_STREAM_MODE"} {
		cmd.Env = append(cmd.Env, change+"_DURATION=20ms")
	}
	return start(t, cmd, plain, "/healthcheck")
}

// Kinesalite starts kinesalite 3.3.3 on 127.0.0.1 and returns its endpoint. Changes
// of streams take 20 ms. It knows streams by name only, not by ARN. It ends with
// the test.
func Kinesalite(t testing.TB) (endpoint string) {
	t.Helper()
	dir := install(t, "kinesalite 3.3.3")
	port := freePort(t)
	cmd := exec.Command("node", "-r", filepath.Join(dir, "loopback.js"), "kinesalite.js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PORT="+port)
	return start(t, cmd, port, "/")
}

// Package installs one package of npm, pinned, and returns its folder. Its scripts
// are not run.
func Package(t testing.TB, name, version string) (dir string) {
	t.Helper()
	manifest := fmt.Sprintf(`{"private":true,"dependencies":{%q:%q}}`, name, version)
	dir = installFiles(t, name, name+" "+version, map[string][]byte{"package.json": []byte(manifest)})
	return filepath.Join(dir, "node_modules", name)
}

// install returns the folder that holds the files of npm/ and node_modules.
func install(t testing.TB, what string) string {
	t.Helper()
	entries, err := files.ReadDir("npm")
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{}
	for _, e := range entries {
		if contents[e.Name()], err = files.ReadFile("npm/" + e.Name()); err != nil {
			t.Fatal(err)
		}
	}
	return installFiles(t, "kinesis", what, contents)
}

// installFiles returns a folder that holds the files, a package.json among them, and
// node_modules. Test binaries run side by side, so each installs into a folder of
// its own and the first to finish renames it into place.
func installFiles(t testing.TB, prefix, what string, contents map[string][]byte) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: nothing is compared with %s", tool, what)
		}
	}
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(contents[name]), contents[name])
	}
	dir := filepath.Join(cache, prefix+"-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	temp, err := os.MkdirTemp(cache, "install-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(temp, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = temp
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm can't install %s, nothing is compared with it: %v: %s", what, err, out)
	}
	if err := os.Rename(temp, dir); err != nil {
		if _, e := os.Stat(dir); e != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// cacheDir is where npm's packages are kept between runs.
func cacheDir() (string, error) {
	base := os.Getenv("KINETL_CACHE")
	if base == "" {
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		for ; ; wd = filepath.Dir(wd) {
			if _, err := os.Stat(filepath.Join(wd, "go.mod")); err == nil {
				break
			}
			if wd == filepath.Dir(wd) {
				return "", fmt.Errorf("no go.mod above the working folder: set KINETL_CACHE")
			}
		}
		base = filepath.Join(wd, ".cache")
	}
	dir, err := filepath.Abs(filepath.Join(base, "npm"))
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// start runs the server until the test ends and waits until it answers.
func start(t testing.TB, cmd *exec.Cmd, port, health string) string {
	t.Helper()
	output := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	gone := false
	t.Cleanup(func() {
		if !gone {
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said: %s", strings.Join(cmd.Args, " "), output)
		}
	})
	endpoint := "http://127.0.0.1:" + port
	client := &http.Client{Timeout: startTimeout}
	defer client.CloseIdleConnections()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(startTimeout)
	for {
		if resp, err := client.Get(endpoint + health); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return endpoint
		}
		select {
		case err := <-ended:
			gone = true
			t.Fatalf("%s ended before it answered: %v: %s", strings.Join(cmd.Args, " "), err, output)
		case <-deadline:
			t.Fatalf("%s does not answer on port %s", strings.Join(cmd.Args, " "), port)
		case <-again.C:
		}
	}
}

// syncBuffer is written by the process and read by the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
