package main

import (
	"crypto/rand"
	"fmt"
	"os"
)

// workerID names this process: host, pid, and something random, because a host and
// a pid come back (R21).
func workerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
