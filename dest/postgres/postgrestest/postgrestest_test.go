//go:build unix

package postgrestest

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const childEnv = "KINETL_TEST_POSTGRES_CHILD"

// Databases are apart, and the server is one.
func TestDatabasesAreApart(t *testing.T) {
	ctx := context.Background()
	var servers []string
	for range 2 {
		conn, err := pgx.Connect(ctx, Start(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "CREATE TABLE one (n int)"); err != nil {
			t.Fatal(err)
		}
		var started string
		if err := conn.QueryRow(ctx, "SELECT pg_postmaster_start_time()::text").Scan(&started); err != nil {
			t.Fatal(err)
		}
		servers = append(servers, started)
	}
	if servers[0] != servers[1] {
		t.Errorf("two servers, started %v", servers)
	}
}

// The server and its folder are gone soon after the test process was killed.
func TestTheServerEndsWithTheProcess(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		Start(t)
		os.Stdout.WriteString("server " + running.port + " " + running.dir + "\n")
		select {}
	}
	Start(t) // also installs, or skips
	child := exec.Command(os.Args[0], "-test.run=TestTheServerEndsWithTheProcess")
	child.Env = append(os.Environ(), childEnv+"=1")
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(line)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	late := time.After(30 * time.Second)
	for {
		_, err := os.Stat(words[2])
		conn, dialErr := net.Dial("tcp", "127.0.0.1:"+words[1])
		if conn != nil {
			conn.Close()
		}
		if errors.Is(err, fs.ErrNotExist) && dialErr != nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("still there: folder %v, port %v", err, dialErr)
		case <-again.C:
		}
	}
}
