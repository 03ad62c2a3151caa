// Package dynamotest starts servers that answer as DynamoDB does, for tests:
// dynalite, and moto for what that one lacks (point-in-time recovery, deletion
// protection, indexes that are added later).
//
// They are pinned in servers/ and installed once, dynalite by npm, moto into a virtual
// environment of Python, into $KINETL_CACHE/dynamotest, by default .cache/dynamotest
// beside go.mod. Where that can't be done the test is skipped and says what it left out.
package dynamotest

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

//go:embed servers
var servers embed.FS

// Dynalite starts dynalite 4.0.0 on 127.0.0.1 and returns its endpoint. Tables change
// within 10 ms. It ends with the test.
func Dynalite(t testing.TB) (endpoint string) {
	t.Helper()
	dir := install(t, "dynalite 4.0.0", []string{"package.json", "dynalite.js"}, []string{"node", "npm"},
		[]string{"npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"})
	cmd := exec.Command("node", "dynalite.js")
	cmd.Dir = dir
	return start(t, cmd, "/")
}

// Moto starts moto 5.2.1 on 127.0.0.1 and returns its endpoint. It serves other AWS
// services too, and checks no signatures. It ends with the test.
func Moto(t testing.TB) (endpoint string) {
	t.Helper()
	python := filepath.Join("venv", "bin", "python")
	dir := install(t, "moto 5.2.1", []string{"requirements.txt", "serve_moto.py"}, []string{"python3"},
		[]string{"python3", "-m", "venv", "venv"},
		[]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"})
	cmd := exec.Command(filepath.Join(dir, python), "serve_moto.py")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return start(t, cmd, "/moto-api/")
}

// Config reaches such a server.
func Config(endpoint string) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}
}
