package sqlitelease

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/leasetest"
)

func TestConformance(t *testing.T) {
	folders := map[string]string{}
	leasetest.Run(t, func(t *testing.T, worker string) lease.Store {
		if folders[t.Name()] == "" {
			folders[t.Name()] = t.TempDir()
		}
		return open(t, filepath.Join(folders[t.Name()], "leases.db"), worker)
	})
}

func open(t *testing.T, path, worker string) *Store {
	t.Helper()
	s, err := Open(path, worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// R25: the lease of a process that was killed is free at once, that of a living
// one is not.
func TestKilledOwnerIsGone(t *testing.T) {
	if path := os.Getenv("KINETL_TEST_OWNER"); path != "" {
		own(path)
		return
	}
	path := filepath.Join(t.TempDir(), "it's 100% ok", "leases.db")
	mine := open(t, path, "me")
	child := exec.Command(os.Args[0], "-test.run=TestKilledOwnerIsGone")
	child.Env = append(os.Environ(), "KINETL_TEST_OWNER="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if l := only(t, mine); l.Owner != "child" || l.OwnerGone {
		t.Errorf("while it lives: %+v", l)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	if l := only(t, mine); !l.OwnerGone {
		t.Errorf("after the kill: %+v", l)
	}
	if r, err := OpenReader(path); err != nil {
		t.Error(err)
	} else {
		defer r.Close()
		if l := only(t, r); !l.OwnerGone {
			t.Errorf("a reader sees %+v", l)
		}
	}
}

// own is the child: it owns a lease until it is killed.
func own(path string) {
	s, err := Open(path, "child")
	if err == nil {
		err = s.Create(context.Background(), lease.Lease{Key: "s:1", Owner: "child", Checkpoint: lease.TrimHorizon})
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString("owned\n")
	select {}
}

func only(t *testing.T, s *Store) lease.Lease {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("leases %v, error %v", all, err)
	}
	return all[0]
}

func TestOneProcessPerWorker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	open(t, path, "me")
	if _, err := Open(path, "me"); err == nil {
		t.Error("a second worker of the same id was let in")
	}
	if _, err := OpenReader(filepath.Join(t.TempDir(), "none.db")); err == nil {
		t.Error("a file that is not there was opened to read")
	}
}
