package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease"
)

// awkwardRecords are n payloads, a part of them such that PostgreSQL or a table can't
// take them.
func awkwardRecords(n int) (out []string) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	long := strings.Repeat("a long key ", 20)
	for i := range n {
		fields := []string{fmt.Sprintf(`"Order":%d`, i)}
		add := func(every int, key string, values ...string) {
			if random.IntN(every) == 0 {
				fields = append(fields, fmt.Sprintf("%q:%s", key, pick(values...)))
			}
		}
		add(2, "Total", "1", "9007199254740993", "0.1", "1e23", "-0.0", "1e400", "12345678901234567890", "1e15", "8.41e21", "null")
		add(3, "whole", "1", "2", "9223372036854775807")
		add(3, "mixed", `"text"`, "1", "2.5", "true", `{"b":1,"a":[1.50,{}]}`, "{}", "[]", "1e-7")
		add(3, "nested", `{"z":1,"a":"\u00e9"}`, "[]", "{}", `[1e2]`)
		add(9, "note", `"x"`, `""`, `"a\u0000b"`, `"it's \\ \"quoted\""`)
		add(9, "deep", `{"a":"x"}`, `{"a":"\u0000"}`, `[1e-20000]`)
		add(9, long+pick("1", "2"), `"x"`)
		add(9, "xmin", "1")
		add(9, "User Name", `"n"`)
		add(9, "day", `"2026-01-02"`, `"soon"`)
		add(9, "price", "1", "2.5", "2.555", "-1")
		payload := "{" + strings.Join(fields, ",") + "}"
		if random.IntN(50) == 0 {
			payload = payload[:len(payload)-1]
		}
		out = append(out, payload)
	}
	return out
}

// Two workers share the shards of a stream of awkward records. Each record is a row or
// a dead letter, once; and a second reading by one worker, in batches of another size,
// gives the same rows and the same dead letters.
func TestTwoReadings(t *testing.T) {
	h := newHarness(t, "public")
	server, err := kinesistest.Start(kinesistest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const records = 1500
	if err := server.CreateStream("Orders", 4); err != nil {
		t.Fatal(err)
	}
	for i, payload := range awkwardRecords(records) {
		if _, _, err := server.Put("Orders", fmt.Sprint("key", i%97), []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	client := awskinesis.New(awskinesis.Options{Region: "us-east-1", BaseEndpoint: aws.String(server.URL()),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
		})})
	read := func(schema string, workers, rows int) (stored, refused []string) {
		h.exec(t, "CREATE SCHEMA "+schema)
		h.exec(t, "CREATE TABLE "+schema+".orders (day date, price numeric(10,2) CHECK (price >= 0))")
		leases := &lease.Memory{}
		var wg sync.WaitGroup
		for n := range workers {
			d, err := New(t.Context(), Options{URL: h.dsn, Schema: schema, Application: "app"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			pipeline := &kinetl.Pipeline{
				Consumer: kinetl.Consumer{Source: kinesis.NewSource(kinesis.Options{Client: client, Streams: []string{"Orders"}, ReadShare: 1}), Leases: leases,
					Config: kinetl.ConsumerConfig{Worker: fmt.Sprint("worker-", n), Once: true, MaxLeases: 4 / workers}},
				NewDecoder: codec.NewJSON, Destination: d,
				Config: kinetl.PipelineConfig{Batch: kinetl.Batch{Rows: rows}, TypeChanges: kinetl.Allow},
			}
			wg.Go(func() {
				var open *kinetl.HaltedError
				if err := pipeline.Run(t.Context()); !errors.As(err, &open) || open.Incidents[0].Kind != kinetl.IncidentColumnCapped {
					t.Errorf("worker %d: %v", n, err)
				}
			})
		}
		wg.Wait()
		stored = strings.Split(h.text(t, fmt.Sprintf(`SELECT string_agg(jsonb_strip_nulls(to_jsonb(o))::text, E'\n' ORDER BY "order") FROM %s.orders o`, schema)), "\n")
		refused = strings.Split(h.text(t, fmt.Sprintf(`SELECT string_agg(convert_from(payload, 'UTF8'), E'\n' ORDER BY sequence) FROM %s.orders_dead_letters`, schema)), "\n")
		return stored, refused
	}
	stored, refused := read("first", 2, 50)
	again, refusedAgain := read("second", 1, 2000)
	if len(stored)+len(refused) != records || len(refused) < 50 {
		t.Errorf("%d rows and %d dead letters of %d records", len(stored), len(refused), records)
	}
	if len(again) != len(stored) {
		t.Fatalf("%d rows at the second reading, %d at the first", len(again), len(stored))
	}
	for i := range stored {
		if stored[i] != again[i] {
			t.Fatalf("row %d: %s, then %s", i, stored[i], again[i])
		}
	}
	if strings.Join(refused, "\n") != strings.Join(refusedAgain, "\n") {
		t.Errorf("%d dead letters, then %d others", len(refused), len(refusedAgain))
	}
	for _, payload := range refused {
		var v map[string]any
		bad := json.Unmarshal([]byte(payload), &v) != nil || strings.Contains(payload, `\u0000`) || strings.Contains(payload, "e-20000") ||
			strings.Contains(payload, "soon") || strings.Contains(payload, "2.555") || strings.Contains(payload, `"price":-1`)
		if !bad {
			t.Errorf("refused for nothing: %s", payload)
		}
	}
}
