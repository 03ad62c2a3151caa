package npmserver

import (
	"net"
	"strings"
	"testing"
)

// The servers answer on the loopback address and on no other of this machine.
func TestLoopbackOnly(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{"kinesis-local": KinesisLocal, "kinesalite": Kinesalite} {
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
