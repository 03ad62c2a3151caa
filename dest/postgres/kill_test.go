package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kinetl/kinetl"
)

const (
	childEnv = "KINETL_TEST_POSTGRES_LOADS"
	phaseEnv = "KINETL_TEST_POSTGRES_PHASE"
	stopEnv  = "KINETL_TEST_POSTGRES_STOPS"
)

// TestMain lets the test binary be another worker's process.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(childEnv); dsn != "" {
		os.Exit(loadUntil(dsn, os.Getenv(phaseEnv), os.Getenv(stopEnv) != ""))
	}
	os.Exit(m.Run())
}

var killSchema = kinetl.Schema{{Name: "n", Class: kinetl.Int53}, {Name: "s", Class: kinetl.String}}

func killPart(n int) kinetl.Part {
	p := textPart(at(n), at(n+1), killSchema, []any{n, "x"}, []any{n, "y"})
	p.DeadLetters = []kinetl.DeadLetter{{Sequence: fmt.Sprint(n), Reason: "x", Payload: []byte("x"), At: time.Unix(1, 0)}}
	return p
}

// loadUntil stores one part, then goes on until the phase. There the process dies, or
// says where it is and waits for a line, to be stopped meanwhile.
func loadUntil(dsn, phase string, stops bool) int {
	armed := false
	ctx := context.Background()
	d, err := New(ctx, Options{URL: dsn, Application: "app", Observe: func(now string) {
		if !armed || now != phase {
			return
		}
		armed = false
		if !stops {
			self, _ := os.FindProcess(os.Getpid()) // always found
			_ = self.Kill()
			select {}
		}
		fmt.Println("here")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}})
	if err == nil {
		_, err = d.Prepare(ctx, "orders", killSchema, kinetl.Refuse)
	}
	if err == nil {
		_, err = d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard, Start: at(0)}})
	}
	if err == nil {
		_, err = d.Commit(ctx, "orders", []kinetl.Part{killPart(0)})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	armed = true
	_, err = d.Commit(ctx, "orders", []kinetl.Part{killPart(1)})
	if stops {
		fmt.Println("commit failed:", err != nil)
		report, err := d.Commit(ctx, "orders", []kinetl.Part{killPart(1)})
		fmt.Println("repeated:", err, len(report.Fenced))
		return 0
	}
	if err == nil {
		_, err = d.Prepare(ctx, "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}, {Name: "new", Class: kinetl.Bool}}, kinetl.Refuse)
	}
	fmt.Println(err)
	return 0
}

func (h *harness) child(phase string, stops bool) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+h.dsn, phaseEnv+"="+phase)
	if stops {
		child.Env = append(child.Env, stopEnv+"=1")
	}
	return child
}

// R7, R10, R11: whenever a process dies, rows, dead letters and watermark agree, and
// the next process goes on from there.
func TestKilledAtEachPhase(t *testing.T) {
	for _, phase := range []string{"begin", "insert", "dead letters", "watermarks", "commit", "committed", "alter"} {
		t.Run(phase, func(t *testing.T) {
			h := newHarness(t, "public")
			out, err := h.child(phase, false).CombinedOutput()
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the process was not killed at %q: %v: %s", phase, err, out)
			}
			d := h.open(t, Options{Application: "app"})
			defer d.Close()
			ctx := context.Background()
			schema, err := d.Prepare(ctx, "orders", nil, kinetl.Refuse)
			if err != nil {
				t.Fatal(err)
			}
			claimed, err := d.Claim(ctx, "orders", []kinetl.Claim{{Shard: shard}})
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if phase == "committed" || phase == "alter" {
				want = 2
			}
			if claimed.Through[shard] != at(want) {
				t.Fatalf("watermark %q, want %d", claimed.Through[shard], want)
			}
			if class := schema[0].Class; class != kinetl.Int53 {
				t.Fatalf("column n is %s", class)
			}
			h.wantCounts(t, 2*want, want)
			for n := want; n < 3; n++ {
				if _, err := d.Commit(ctx, "orders", []kinetl.Part{killPart(n)}); err != nil {
					t.Fatal(err)
				}
			}
			h.wantCounts(t, 6, 3)
		})
	}
}

func (h *harness) wantCounts(t *testing.T, rows, letters int) {
	t.Helper()
	got := h.text(t, "SELECT (SELECT count(*) FROM orders)::text || ' ' || (SELECT count(*) FROM orders_dead_letters)")
	if want := fmt.Sprint(rows, letters); got != want {
		t.Fatalf("rows and dead letters: %s, want %s", got, want)
	}
}

// R11: a process that is stopped in the middle of a commit is overtaken within a lease,
// by a commit and by a change of the table, and when it wakes up it is fenced.
func TestStoppedAtEachPhase(t *testing.T) {
	for _, phase := range []string{"insert", "dead letters", "watermarks", "commit"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, "public")
			child := h.child(phase, true)
			stdin, err := child.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer child.Process.Kill()
			says := bufio.NewReader(stdout)
			if line, err := says.ReadString('\n'); line != "here\n" {
				t.Fatalf("the child says %q (%v)", line, err)
			}
			if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			from := time.Now()
			d := h.open(t, Options{Application: "app", LeaseTime: shortLease})
			defer d.Close()
			call := func(do func() error) {
				tries := 0
				for err := do(); err != nil; err = do() {
					if tries++; code(err) != lockNotAvailable || tries > 3 {
						t.Fatalf("after %v: %v", time.Since(from), err)
					}
				}
			}
			call(func() error {
				_, err := d.Claim(context.Background(), "orders", []kinetl.Claim{{Shard: shard}})
				return err
			})
			call(func() error {
				_, err := d.Commit(context.Background(), "orders", []kinetl.Part{textPart(at(1), kinetl.At("1", 5), killSchema, []any{1, "by the other"})})
				return err
			})
			call(func() error {
				_, err := d.Prepare(context.Background(), "orders", kinetl.Schema{{Name: "n", Class: kinetl.Number}}, kinetl.Refuse)
				return err
			})
			if took := time.Since(from); took > 2*shortLease {
				t.Errorf("it took %v with a lease of %v", took, shortLease)
			}
			if err := child.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(stdin, "go on\n"); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(says)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(rest); got != "commit failed: true\nrepeated: <nil> 1\n" {
				t.Errorf("when it woke up: %s", got)
			}
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
			h.wantCounts(t, 3, 1)
		})
	}
}
