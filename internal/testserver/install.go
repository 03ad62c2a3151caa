package testserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const installTimeout = 5 * time.Minute

// NPM installs the packages of a package.json; their scripts are not run.
var NPM = []string{"npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"}

// Install returns a folder of $KINETL_CACHE, by default .cache beside go.mod, that holds
// the files and what the commands put beside them. Test binaries run side by side, so
// each installs into a folder of its own and the first to finish renames it into place;
// what is installed must bear that. A test is skipped, and says what it left out, when
// a tool is missing or a command fails.
func Install(t testing.TB, prefix, what string, files map[string][]byte, tools []string, commands ...[]string) (dir string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: nothing is tested with %s", tool, what)
		}
	}
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(files[name]), files[name])
	}
	dir = filepath.Join(cache, prefix+"-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	temp, err := os.MkdirTemp(cache, "install-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(temp, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, command := range commands {
		name := command[0]
		if filepath.Base(name) != name {
			name = filepath.Join(temp, name)
		}
		cmd := exec.CommandContext(ctx, name, command[1:]...)
		cmd.Dir = temp
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("%s can't install %s, nothing is tested with it: %v: %s", command[0], what, err, out)
		}
	}
	if err := os.Rename(temp, dir); err != nil {
		if _, e := os.Stat(dir); e != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// cacheDir is where the servers are kept between runs.
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
				return "", errors.New("no go.mod above the working folder: set KINETL_CACHE")
			}
		}
		base = filepath.Join(wd, ".cache")
	}
	dir, err := filepath.Abs(filepath.Join(base, "servers"))
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}
