// Package npmserver starts the Kinesis servers that npm has, as second opinions
// for tests: what kinesistest answers is compared with what they answer.
//
// The packages are pinned in npm/package.json and installed once (see
// testserver.Install). Where node or npm is missing, or the packages can't be had, the
// test is skipped and says what it left out.
package npmserver

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kinetl/kinetl/internal/testserver"
)

//go:embed npm
var files embed.FS

var node = []string{"node", "npm"}

// KinesisLocal starts kinesis-local 0.6.2 on 127.0.0.1 and returns its plain-HTTP
// endpoint. Changes of streams take 20 ms. It ends with the test.
func KinesisLocal(t testing.TB) (endpoint string) {
	t.Helper()
	dir := install(t, "kinesis-local 0.6.2")
	plain, secure := testserver.FreePort(t), testserver.FreePort(t)
	cmd := exec.Command("node", "-r", filepath.Join(dir, "loopback.js"), "main.js")
	cmd.Dir = filepath.Join(dir, "node_modules", "kinesis-local") // it looks for its certificate here
	cmd.Env = append(os.Environ(),
		"AWS_ACCOUNT_ID=000000000000", "AWS_REGION=us-east-1", "LOG_LEVEL=ERROR", "SHARD_LIMIT=1000",
		"KINESIS_MOCK_PLAIN_PORT="+plain, "KINESIS_MOCK_TLS_PORT="+secure)
	for _, change := range []string{"CREATE_STREAM", "DELETE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS", "UPDATE_SHARD_COUNT", "REGISTER_STREAM_CONSUMER", "DEREGISTER_STREAM_CONSUMER", "UPDATE_STREAM_MODE"} {
		cmd.Env = append(cmd.Env, change+"_DURATION=20ms")
	}
	return testserver.Start(t, cmd, plain, "/healthcheck")
}

// Kinesalite starts kinesalite 3.3.3 on 127.0.0.1 and returns its endpoint. Changes
// of streams take 20 ms. It knows streams by name only, not by ARN. It ends with
// the test.
func Kinesalite(t testing.TB) (endpoint string) {
	t.Helper()
	dir := install(t, "kinesalite 3.3.3")
	port := testserver.FreePort(t)
	cmd := exec.Command("node", "-r", filepath.Join(dir, "loopback.js"), "kinesalite.js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PORT="+port)
	return testserver.Start(t, cmd, port, "/")
}

// Package installs one package of npm, pinned, and returns its folder. Its scripts
// are not run.
func Package(t testing.TB, name, version string) (dir string) {
	t.Helper()
	manifest := fmt.Sprintf(`{"private":true,"dependencies":{%q:%q}}`, name, version)
	dir = testserver.Install(t, name, name+" "+version, map[string][]byte{"package.json": []byte(manifest)}, node, testserver.NPM)
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
	return testserver.Install(t, "kinesis", what, contents, node, testserver.NPM)
}
