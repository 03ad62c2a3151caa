package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

const shards = 4

// shapes are the kinds of record, as streams of those names.
var shapes = map[string]func(*rand.Rand, int) string{"256": flat, "1k": nested}

// place is where a server process can be reached.
type place struct {
	URL    string         `json:"url"`
	Bundle string         `json:"bundle"` // file with its certificate
	Counts map[string]int `json:"counts"` // records per stream
}

// serve is the server process: it prints its place, and ends with its stdin.
func serve(megabytes int) error {
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true, TLS: true})
	if err != nil {
		return err
	}
	defer server.Close()
	folder, err := os.MkdirTemp("", "kinetl-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	p := place{URL: server.URL(), Bundle: filepath.Join(folder, "server.pem"), Counts: map[string]int{}}
	if err := os.WriteFile(p.Bundle, server.CertificatePEM(), 0o644); err != nil {
		return err
	}
	for name, shape := range shapes {
		if p.Counts[name], err = fill(server, name, shape, megabytes<<20); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// fill puts records of a shape over all shards of a new stream.
func fill(server *kinesistest.Server, name string, shape func(*rand.Rand, int) string, bytes int) (count int, err error) {
	if err := server.CreateStream(name, shards); err != nil {
		return 0, err
	}
	ids, err := server.Shards(name)
	if err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for put := 0; put < bytes; count++ {
		record := shape(rng, count)
		key := fmt.Sprintf("customer-%d", rng.IntN(5000))
		if _, err := server.PutShard(name, ids[count%shards], key, []byte(record)); err != nil {
			return 0, err
		}
		put += len(record)
	}
	return count, nil
}

// flat is a record of about 256 bytes with eight fields.
func flat(rng *rand.Rand, i int) string {
	s := fmt.Sprintf(`{"id":%d,"customer":"customer-%d","sku":"SKU-%05d","quantity":%d,"price":%d.%02d,"currency":"EUR","paid":%t,"note":"`,
		i, rng.IntN(5000), rng.IntN(90000), 1+rng.IntN(9), rng.IntN(500), 1+rng.IntN(98), rng.IntN(2) == 0)
	return s + words(rng, 254-len(s)) + `"}`
}

// nested is a record of about 1 KB with fifteen leaves, a list, and escapes.
func nested(rng *rand.Rand, i int) string {
	s := fmt.Sprintf(`{"id":%d,"placed_at":"2026-11-30T12:%02d:%02d.%03dZ","customer":{"id":%d,"name":"Zo\u00eb \"%d\" M\u00fcller","vip":%t},"items":[{"sku":"SKU-%05d","qty":%d,"price":%d.%02d},{"sku":"SKU-%05d","qty":%d,"price":%d.%02d}],"total":%d.%02d,"address":{"city":"Lisboa","zip":"%05d"},"comment":"line one\nline two\t`,
		i, rng.IntN(60), rng.IntN(60), rng.IntN(1000), rng.IntN(5000), rng.IntN(99), rng.IntN(2) == 0,
		rng.IntN(90000), 1+rng.IntN(9), rng.IntN(500), 1+rng.IntN(98), rng.IntN(90000), 1+rng.IntN(9), rng.IntN(500), 1+rng.IntN(98),
		rng.IntN(900), 1+rng.IntN(98), rng.IntN(99999))
	return s + words(rng, 1022-len(s)) + `"}`
}

func words(rng *rand.Rand, n int) string {
	list := []string{"amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "iris", "juniper"}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(list[rng.IntN(len(list))])
		b.WriteByte(' ')
	}
	return b.String()[:max(0, n)]
}
