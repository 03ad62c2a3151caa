package sqlitelease

import (
	"bufio"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kinetl/kinetl/lease"
	"github.com/kinetl/kinetl/lease/leasetest"
)

func TestConformance(t *testing.T) {
	folders := map[string]string{}
	path := func(t *testing.T) string {
		if folders[t.Name()] == "" {
			folders[t.Name()] = t.TempDir()
		}
		return filepath.Join(folders[t.Name()], "leases.db")
	}
	leasetest.Run(t, leasetest.Suite{
		Open: func(t *testing.T, worker string) lease.Store { return open(t, path(t), worker) },
		Set: func(t *testing.T, key, attribute, text string) {
			db := raw(t, path(t))
			execute(t, db, `ALTER TABLE leases ADD COLUMN `+attribute+` TEXT`)
			execute(t, db, `UPDATE leases SET `+attribute+` = ? WHERE leaseKey = ?`, text, key)
		},
		Attribute: func(t *testing.T, key, attribute string) (text string) {
			if err := raw(t, path(t)).QueryRow(`SELECT `+attribute+` FROM leases WHERE leaseKey = ?`, key).Scan(&text); err != nil {
				t.Fatal(err)
			}
			return text
		},
	})
}

// raw is the file without the store.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
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

// A file of a version that knew fewer attributes is read and written by this one, and
// that version's workers may go on beside it.
func TestAFileOfAnEarlierVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	db := raw(t, path)
	execute(t, db, `CREATE TABLE leases (leaseKey TEXT PRIMARY KEY, leaseOwner TEXT NOT NULL, leaseCounter INTEGER NOT NULL, checkpoint TEXT NOT NULL,
		checkpointSubSequenceNumber INTEGER NOT NULL, ownerSwitchesSinceCheckpoint INTEGER NOT NULL, parentShardId TEXT NOT NULL, kinetlCreated TEXT NOT NULL,
		kinetlStart TEXT NOT NULL, kinetlCaughtUp TEXT NOT NULL, kinetlSink TEXT NOT NULL, kinetlIncident TEXT NOT NULL) WITHOUT ROWID`)
	const insert = `INSERT INTO leases (leaseKey, leaseOwner, leaseCounter, checkpoint, checkpointSubSequenceNumber, ownerSwitchesSinceCheckpoint,
		parentShardId, kinetlCreated, kinetlStart, kinetlCaughtUp, kinetlSink, kinetlIncident) VALUES (?, '', 0, 'TRIM_HORIZON', 0, 0, '', '', '', '', '', '')`
	execute(t, db, insert, "s:1")
	reader, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	l := only(t, reader)
	next := l
	next.Accepted, next.Children = "oldest", []string{"2", "3"}
	if _, err := open(t, path, "me").Update(t.Context(), l, next); err != nil {
		t.Fatal(err)
	}
	if l := only(t, reader); l.Accepted != "oldest" || len(l.Children) != 2 {
		t.Errorf("read back %+v", l)
	}
	execute(t, db, insert, "s:2") // a worker of the earlier version
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
