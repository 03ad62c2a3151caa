//go:build interop

package interop

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Generations of KCL, as profiles of kcl/pom.xml. KCL 3.0 keeps what is not a lease in
// tables of its own, KCL 3.5 among the leases.
const (
	kcl2  = "kcl2"
	kcl30 = "kcl30"
	kcl3  = "kcl3"
)

// line is one line that a KCL worker says.
type line struct {
	Event string // empty: a record
	Shard string
	Seq   string
	Sub   uint64
	Key   string
	Data  []byte
}

// kcl is a KCL worker, a process.
type kcl struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  string // file that has its stderr
	read sync.WaitGroup

	mu    sync.Mutex
	lines []line
}

// startKCL starts a worker. Of each shard it takes so many records and no more; 0: all.
// It dies with the test.
func (w *world) startKCL(profile, name string, limit int) *kcl {
	t := w.t
	t.Helper()
	folder := buildKCL(t, profile)
	k := &kcl{t: t, name: name, log: filepath.Join(w.folder, fmt.Sprintf("%s-%d.log", name, w.number()))}
	stderr, err := os.Create(k.log)
	must(t, err)
	defer stderr.Close()
	k.cmd = exec.Command("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-cp", filepath.Join(folder, "classes")+":"+filepath.Join(folder, "lib", "*"), "interop.Worker")
	k.cmd.Env = append(os.Environ(), "APPLICATION="+table, "STREAM="+stream, "WORKER="+name,
		"KINESIS="+w.server.URL(), "DYNAMODB="+w.dynamo, fmt.Sprintf("FAILOVER=%d", failover.Milliseconds()))
	if limit > 0 {
		k.cmd.Env = append(k.cmd.Env, "LIMIT="+strconv.Itoa(limit))
	}
	k.cmd.Stderr = stderr
	_, err = k.cmd.StdinPipe() // its end ends the worker, however this process ends
	must(t, err)
	stdout, err := k.cmd.StdoutPipe()
	must(t, err)
	must(t, k.cmd.Start())
	k.read.Go(func() {
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, 4<<20)
		for in.Scan() {
			k.hear(in.Bytes())
		}
	})
	t.Cleanup(func() {
		k.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s said: %s", name, tail(k.log))
		}
	})
	return k
}

// hear takes in a line; the last one of a worker that is killed may be cut.
func (k *kcl) hear(text []byte) {
	var raw struct {
		line
		Data string
	}
	if json.Unmarshal(text, &raw) != nil {
		return
	}
	var err error
	if raw.line.Data, err = base64.StdEncoding.DecodeString(raw.Data); err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, raw.line)
}

func (k *kcl) said() []line {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lines[:len(k.lines):len(k.lines)]
}

// checkpoints is the last checkpoint of each shard that the worker is sure of.
func (k *kcl) checkpoints() map[string]line {
	out := map[string]line{}
	for _, l := range k.said() {
		if l.Event == "checkpoint" {
			out[l.Shard] = l
		}
	}
	return out
}

// taken is how many records of each shard the worker has reported.
func (k *kcl) taken() map[string]int {
	out := map[string]int{}
	for _, l := range k.said() {
		if l.Event == "" {
			out[l.Shard]++
		}
	}
	return out
}

// end sends a signal and waits until the worker is gone and all that it said is read.
func (k *kcl) end(signal syscall.Signal) {
	if k.cmd.ProcessState != nil {
		return
	}
	_ = k.cmd.Process.Signal(signal)
	k.read.Wait()
	_ = k.cmd.Wait() // a JVM that got a signal reports it as a failure
}

var kclBuild sync.Mutex

// buildKCL compiles the worker, once, into $KINETL_CACHE/kcl, and returns the folder
// with its classes and jars.
func buildKCL(t *testing.T, profile string) (folder string) {
	t.Helper()
	kclBuild.Lock()
	defer kclBuild.Unlock()
	hash := sha256.New()
	for _, name := range []string{"kcl/pom.xml", "kcl/src/main/java/interop/Worker.java"} {
		text, err := os.ReadFile(name)
		must(t, err)
		hash.Write(text)
	}
	cache := os.Getenv("KINETL_CACHE")
	if cache == "" {
		cache = filepath.Join("..", ".cache")
	}
	cache, err := filepath.Abs(filepath.Join(cache, "kcl"))
	must(t, err)
	folder = filepath.Join(cache, profile+"-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	must(t, os.MkdirAll(cache, 0o755))
	temp, err := os.MkdirTemp(cache, "build-")
	must(t, err)
	defer os.RemoveAll(temp)
	cmd := exec.Command("mvn", "-B", "-q", "-f", "kcl/pom.xml", "-P", profile, "-Dout="+temp, "compile")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mvn can't build the KCL worker of profile %s: %v\n%s", profile, err, out)
	}
	must(t, os.Rename(temp, folder))
	return folder
}

// kclVersion is the version that a worker was built with.
func kclVersion(t *testing.T, profile string) string {
	t.Helper()
	jars, err := filepath.Glob(filepath.Join(buildKCL(t, profile), "lib", "amazon-kinesis-client-[0-9]*.jar"))
	must(t, err)
	if len(jars) != 1 {
		t.Fatalf("profile %s has the KCL jars %v, want one", profile, jars)
	}
	name := filepath.Base(jars[0])
	return "KCL " + name[len("amazon-kinesis-client-"):len(name)-len(".jar")]
}
