// Package dynamotest starts servers that answer as DynamoDB does, for tests:
// dynalite, and moto for what that one lacks (point-in-time recovery, deletion
// protection, indexes that are added later).
//
// They are pinned in servers/ and installed once, dynalite by npm, moto into a virtual
// environment of Python (see testserver.Install). Where that can't be done the test is
// skipped and says what it left out.
package dynamotest

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/kinetl/kinetl/internal/testserver"
)

//go:embed servers
var servers embed.FS

// Dynalite starts dynalite 4.0.0 on 127.0.0.1 and returns its endpoint. Tables change
// within 10 ms. It ends with the test.
func Dynalite(t testing.TB) (endpoint string) {
	t.Helper()
	dir := testserver.Install(t, "dynalite", "dynalite 4.0.0", named(t, "package.json", "dynalite.js"), []string{"node", "npm"}, testserver.NPM)
	return start(t, exec.Command("node", "dynalite.js"), dir, "/")
}

// Moto starts moto 5.2.1 on 127.0.0.1 and returns its endpoint. It serves other AWS
// services too, and checks no signatures. It ends with the test.
func Moto(t testing.TB) (endpoint string) {
	t.Helper()
	python := filepath.Join("venv", "bin", "python")
	dir := testserver.Install(t, "moto", "moto 5.2.1", named(t, "requirements.txt", "serve_moto.py"), []string{"python3"},
		[]string{"python3", "-m", "venv", "venv"},
		[]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"})
	return start(t, exec.Command(filepath.Join(dir, python), "serve_moto.py"), dir, "/moto-api/")
}

// named are files of servers/.
func named(t testing.TB, names ...string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range names {
		text, err := servers.ReadFile("servers/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	return files
}

// start runs a server of servers/, which takes its port from PORT and minds its stdin.
func start(t testing.TB, cmd *exec.Cmd, dir, health string) (endpoint string) {
	t.Helper()
	port := testserver.FreePort(t)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PORT="+port, "PYTHONDONTWRITEBYTECODE=1")
	return testserver.Start(t, cmd, port, health)
}

// Config reaches such a server.
func Config(endpoint string) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}
}
