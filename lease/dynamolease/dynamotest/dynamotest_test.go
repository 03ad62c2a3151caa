package dynamotest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var all = map[string]func(testing.TB) string{"dynalite": Dynalite, "moto": Moto}

// The servers answer on the loopback address and on no other of this machine.
func TestLoopbackOnly(t *testing.T) {
	for name, start := range all {
		t.Run(name, func(t *testing.T) {
			_, port, _ := strings.Cut(strings.TrimPrefix(start(t), "http://"), ":")
			addrs, err := net.InterfaceAddrs()
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range addrs {
				ip := a.(*net.IPNet).IP
				if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
					continue
				}
				if conn, err := net.Dial("tcp", net.JoinHostPort(ip.String(), port)); err == nil {
					conn.Close()
					t.Errorf("it listens on %s too", ip)
				}
			}
		})
	}
}

// A client that is killed within a request does the servers no harm.
func TestClientsMayDie(t *testing.T) {
	for name, start := range all {
		t.Run(name, func(t *testing.T) {
			endpoint := start(t)
			conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			// An empty request first: once it is answered, the next is being read.
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
			for range 20 {
				resp, err := http.Get(endpoint + "/moto-api/")
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}

// A test that is killed takes its server with it.
func TestServersEndWithTheTest(t *testing.T) {
	if name := os.Getenv("KINETL_TEST_SERVER"); name != "" {
		os.Stdout.WriteString("endpoint " + all[name](t) + "\n")
		select {}
	}
	for name, start := range all {
		t.Run(name, func(t *testing.T) {
			start(t) // installed, or skipped, before the child begins
			child := exec.Command(os.Args[0], "-test.run=TestServersEndWithTheTest")
			child.Env = append(os.Environ(), "KINETL_TEST_SERVER="+name)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			endpoint := strings.TrimSpace(strings.TrimPrefix(line, "endpoint "))
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait() // killed
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			deadline := time.After(20 * time.Second)
			for {
				resp, err := client.Get(endpoint)
				if err != nil {
					return
				}
				resp.Body.Close()
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatal("it still answers")
				}
			}
		})
	}
}
