//go:build unix

package postgrestest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// nobody is the user that the server runs as when the test runs as root, whom
// PostgreSQL refuses.
const nobody = 65534

const startTimeout = 60 * time.Second

// server is a running PostgreSQL and its folder.
type server struct {
	dir      string
	port     string
	password string
	stdin    *os.File // the server's life: it ends when the last copy of this end is closed
}

func (s *server) url(database string) string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%s/%s?sslmode=disable", s.password, s.port, database)
}

// start makes a cluster in a temporary folder and starts its server.
func start(native string) (_ *server, err error) {
	dir, err := os.MkdirTemp("", "kinetl-postgres-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	s := &server{dir: dir, password: rand.Text()}
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chown(secret, nobody, nobody)); err != nil {
			return nil, err
		}
		// The user that the server runs as must be able to search the folders above
		// the binaries; else it gets a copy.
		if err := s.command(filepath.Join(native, "bin", "postgres"), "--version").Run(); errors.Is(err, fs.ErrPermission) {
			local := filepath.Join(dir, "native")
			if err := copyTo(local, native); err != nil {
				return nil, err
			}
			native = local
		}
	}
	out, err := s.command(filepath.Join(native, "bin", "initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres",
		"--pwfile", secret, "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C", "--no-sync").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	for try := 0; ; try++ {
		if err = s.serve(native); err == nil || try == 2 { // somebody may take the port first
			return s, err
		}
	}
}

// copyTo copies a folder for nobody, who removes it with the rest.
func copyTo(dir, from string) error {
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
}

// command is a command of the server's user, in the server's folder.
func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	// A group of its own: Ctrl-C is for the test, whose end ends the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

// watch runs the server for as long as its descriptor 3 stays open, which is as long
// as the test process lives, however that ends. Then it stops the server and removes
// the folder. It also ends when the server does.
const watch = `
"$@" 3<&- & server=$!
(read -r _ <&3; : >"$KINETL_DIR/stop"; kill -QUIT $server) & watcher=$!
exec 3<&-
wait $server
code=$?
if [ -e "$KINETL_DIR/stop" ]; then cd /; rm -rf "$KINETL_DIR"; else kill $watcher; fi
exit $code`

// serve starts the server on a free port and waits until it answers.
func (s *server) serve(native string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, s.port, err = net.SplitHostPort(ln.Addr().String())
	if err := errors.Join(err, ln.Close()); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// Autovacuum would let later rows take the place of earlier ones that were rolled
	// back, and tests read rows in the order in which they lie.
	cmd := s.command("/bin/sh", "-c", watch, "sh", filepath.Join(native, "bin", "postgres"), "-D", filepath.Join(s.dir, "data"),
		"-p", s.port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
		"-c", "full_page_writes=off", "-c", "autovacuum=off", "-c", "max_connections=200", "-c", "shared_buffers=64MB")
	cmd.Env = append(cmd.Env, "KINETL_DIR="+s.dir)
	cmd.Stdout, cmd.Stderr = log, log // files: go test waits for pipes to close
	alive, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer alive.Close()
	cmd.ExtraFiles = []*os.File{alive} // 3
	if err := cmd.Start(); err != nil {
		return errors.Join(err, stdin.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := s.waitReady(ended); err != nil {
		stdin.Close()
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(text))
	}
	s.stdin = stdin
	return nil
}

func (s *server) waitReady(ended <-chan error) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case end := <-ended:
			return fmt.Errorf("it ended before it answered: %v", end)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer on port %s: %w", s.port, err)
		case <-again.C:
		}
	}
}
