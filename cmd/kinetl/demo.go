package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kinetl/kinetl"
	"github.com/kinetl/kinetl/awsconf"
	"github.com/kinetl/kinetl/codec"
	"github.com/kinetl/kinetl/dest/duckdb"
	"github.com/kinetl/kinetl/kinesis"
	"github.com/kinetl/kinetl/kinesis/kinesistest"
	"github.com/kinetl/kinetl/lease/sqlitelease"
)

const (
	demoStream = "orders"
	demoMark   = ".kinetl-demo" // marks a folder that demo may replace
	demoShards = 2
)

func demoCommand() *cobra.Command {
	d := &demo{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole path on this machine, without AWS",
		Long: `Starts a Kinesis server in this process, puts the orders of a web shop into a
stream that is split and merged meanwhile, loads them into a DuckDB file, and
compares what the table holds with what was put. Everything stands in
./kinetl-demo, which each demo replaces.`,
		Example: "  kinetl demo\n  kinetl demo --records 1000000 --keep /tmp/orders",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.out, d.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().IntVar(&d.records, "records", 200_000, "how `many` orders are put")
	cmd.Flags().StringVar(&d.folder, "keep", "kinetl-demo", "`folder` for the DuckDB file; replaced if an earlier demo made it")
	cmd.Flags().BoolVar(&d.asJSON, "json", false, "print a summary as one JSON document on the last line")
	return cmd
}

// demo is one run of the command.
type demo struct {
	records int
	folder  string
	asJSON  bool
	out     io.Writer
	log     io.Writer

	client   *awskinesis.Client
	progress *progress
}

// summary is what a demo comes to.
type summary struct {
	Put        int64   `json:"records_put"`
	Rows       int64   `json:"rows"`
	Dead       int64   `json:"dead_letters"`
	Duplicates int64   `json:"duplicates"`
	Missing    int64   `json:"missing"`
	Seconds    float64 `json:"seconds"`
}

func (d *demo) run(ctx context.Context) error {
	if d.records < 1 {
		return exit(exitDocuments, fmt.Errorf("--records %d: put at least one", d.records))
	}
	if err := d.prepareFolder(); err != nil {
		return exit(exitDocuments, err)
	}
	server, err := kinesistest.Start(kinesistest.Options{NoLimits: true})
	if err != nil {
		return exit(exitSurroundings, fmt.Errorf("start the Kinesis server: %w", err))
	}
	defer server.Close()
	cfg, err := awsconf.Load(ctx, awsconf.Settings{Endpoint: server.URL()})
	if err != nil {
		return err
	}
	d.client = awskinesis.NewFromConfig(cfg)
	if _, err := d.client.CreateStream(ctx, &awskinesis.CreateStreamInput{StreamName: aws.String(demoStream), ShardCount: aws.Int32(demoShards)}); err != nil {
		return fmt.Errorf("create the stream: %w", err)
	}
	fmt.Fprintf(d.log, "A Kinesis server runs at %s; %d orders go into stream %s and from there into %s\n", server.URL(), d.records, demoStream, d.database())

	began := time.Now()
	d.progress = newProgress(d.log)
	if err := d.load(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return exit(exitFailed, errors.New("stopped before everything was loaded; run it again"))
	}
	return d.report(ctx, time.Since(began))
}

func (d *demo) database() string { return filepath.Join(d.folder, demoStream+".duckdb") }

// prepareFolder empties the folder of an earlier demo. Any other folder is left
// alone, so that a slip in --keep deletes nothing.
func (d *demo) prepareFolder() error {
	mark := filepath.Join(d.folder, demoMark)
	entries, err := os.ReadDir(d.folder)
	if _, markErr := os.Stat(mark); err == nil && len(entries) > 0 && markErr != nil {
		return fmt.Errorf("folder %s holds something that no demo made: name another with --keep", d.folder)
	}
	if err := os.RemoveAll(d.folder); err != nil {
		return fmt.Errorf("replace folder %s: %w", d.folder, err)
	}
	if err := os.MkdirAll(d.folder, 0o755); err != nil {
		return fmt.Errorf("make folder %s: %w", d.folder, err)
	}
	if err := os.WriteFile(filepath.Join(d.folder, ".gitignore"), []byte("*\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile(mark, []byte("kinetl demo replaces this folder\n"), 0o644)
}

// load puts and reads at the same time, and returns when everything that was put
// is stored, or ctx ends.
func (d *demo) load(ctx context.Context) error {
	dest, err := duckdb.New(duckdb.Options{Path: d.database(), Application: "demo", MemoryLimit: 512 << 20})
	if err != nil {
		return err
	}
	defer dest.Close()
	worker := workerID()
	leases, err := sqlitelease.Open(filepath.Join(d.folder, "leases.db"), worker)
	if err != nil {
		return err
	}
	defer leases.Close()
	pipeline := &kinetl.Pipeline{
		Consumer: kinetl.Consumer{
			Source: kinesis.NewSource(kinesis.Options{Client: d.client, Streams: []string{demoStream}, Unpaced: true}),
			Leases: leases,
			Config: kinetl.ConsumerConfig{Worker: worker, Observe: d.progress.observe, Discovery: time.Second},
		},
		NewDecoder:  codec.NewJSON,
		Destination: dest,
		Config:      kinetl.PipelineConfig{Batch: kinetl.Batch{Rows: 20_000, Age: time.Second}},
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	shown := make(chan struct{})
	g, gctx := errgroup.WithContext(reading)
	g.Go(func() error { defer stop(); return pipeline.Run(gctx) })
	g.Go(func() error {
		if err := d.put(gctx); err != nil && gctx.Err() == nil {
			return fmt.Errorf("put records: %w", err)
		}
		d.waitStored(gctx)
		stop()
		return nil
	})
	g.Go(func() error { d.progress.show(shown); return nil })
	go func() { <-gctx.Done(); close(shown) }()
	return g.Wait()
}

// waitStored waits until as much is stored as was put.
func (d *demo) waitStored(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for d.progress.stored() < int64(d.records) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// put sends the orders, every tenth request as aggregates, and reshards the stream
// at a quarter, half and three quarters of the way.
func (d *demo) put(ctx context.Context) error {
	source := newOrders(d.records)
	reshard := []func(context.Context) error{d.split, d.split, d.merge}
	for request := 0; source.made < d.records; request++ {
		var entries []types.PutRecordsRequestEntry
		for source.made < d.records && len(entries) < 200 {
			key, payload := source.next()
			if request%10 == 3 {
				packed := []kinesis.AggregateRecord{{PartitionKey: key, Data: payload}}
				for source.made < d.records && len(packed) < 20 {
					key, payload := source.next()
					packed = append(packed, kinesis.AggregateRecord{PartitionKey: key, Data: payload})
				}
				payload = kinesis.Aggregate(packed)
			}
			entries = append(entries, types.PutRecordsRequestEntry{PartitionKey: &key, Data: payload})
		}
		if err := d.send(ctx, entries); err != nil {
			return err
		}
		if done := 4 - len(reshard); len(reshard) > 0 && source.made >= d.records*done/4 {
			if err := reshard[0](ctx); err != nil {
				return err
			}
			reshard = reshard[1:]
		}
	}
	return nil
}

func (d *demo) send(ctx context.Context, entries []types.PutRecordsRequestEntry) error {
	answer, err := d.client.PutRecords(ctx, &awskinesis.PutRecordsInput{StreamName: aws.String(demoStream), Records: entries})
	if err != nil {
		return err
	}
	if n := aws.ToInt32(answer.FailedRecordCount); n > 0 {
		return fmt.Errorf("%d records of a request were refused", n)
	}
	return nil
}

// report looks at the file with a connection of its own, and compares.
func (d *demo) report(ctx context.Context, took time.Duration) error {
	db, err := sql.Open("duckdb", d.database()+"?access_mode=READ_ONLY")
	if err != nil {
		return err
	}
	defer db.Close()
	for _, q := range []struct{ title, statement string }{
		{"The table", `SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = 'orders' AND NOT internal ORDER BY column_index`},
		{"Ten rows", `SELECT order_id, customer, total, items, payment_ref, coupon, loyalty_points, _kinesis_shard FROM orders ORDER BY order_id DESC LIMIT 10`},
		{"Rows per shard", `SELECT _kinesis_shard AS shard, count(*) AS rows, min(_kinesis_arrival) AS first_arrival, max(_kinesis_arrival) AS last_arrival FROM orders GROUP BY ALL ORDER BY ALL`},
		{"Dead letters", `SELECT shard, partition_key, reason, payload FROM orders_dead_letters ORDER BY "at"`},
	} {
		fmt.Fprintf(d.out, "\n%s\n", q.title)
		if err := printQuery(ctx, d.out, db, q.statement, false); err != nil {
			return fmt.Errorf("look at the table: %w", err)
		}
	}
	sum, err := d.compare(ctx, db)
	if err != nil {
		return err
	}
	sum.Seconds = took.Round(time.Millisecond).Seconds()
	d.conclude(sum)
	if sum.Rows+sum.Dead != sum.Put || sum.Duplicates != 0 || sum.Missing != 0 {
		return exit(exitFailed, fmt.Errorf("the table does not hold what was put: %+v", sum))
	}
	return nil
}

// compare counts against what was put: orders are numbered, and it is known which
// ones were cut short.
func (d *demo) compare(ctx context.Context, db *sql.DB) (summary, error) {
	sum := summary{Put: int64(d.records)}
	row := db.QueryRowContext(ctx, `SELECT count(*), count(*) - count(DISTINCT order_id) FROM orders`)
	if err := row.Scan(&sum.Rows, &sum.Duplicates); err != nil {
		return sum, fmt.Errorf("count rows: %w", err)
	}
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM orders_dead_letters`).Scan(&sum.Dead); err != nil {
		return sum, fmt.Errorf("count dead letters: %w", err)
	}
	var broken []int
	for i, source := 0, newOrders(d.records); i < d.records; i++ {
		if source.broken(i) {
			broken = append(broken, i)
		}
	}
	statement := `SELECT count(*) FROM range(?) AS r(i) WHERE i NOT IN (SELECT order_id FROM orders)`
	if err := db.QueryRowContext(ctx, statement, d.records).Scan(&sum.Missing); err != nil {
		return sum, fmt.Errorf("look for missing rows: %w", err)
	}
	sum.Missing -= int64(len(broken))
	return sum, nil
}

func (d *demo) conclude(sum summary) {
	if d.asJSON {
		defer func() { _ = json.NewEncoder(d.out).Encode(sum) }() // a struct of numbers
	}
	fmt.Fprintf(d.out, "\n%d records put = %d rows + %d dead letters; %d duplicates, %d missing; %.1f s\n",
		sum.Put, sum.Rows, sum.Dead, sum.Duplicates, sum.Missing, sum.Seconds)
	program := os.Args[0]
	fmt.Fprintf(d.out, `
Look further:           %s query %s "SELECT address->>'city' AS city, count(*) AS orders, sum(total) AS total FROM orders GROUP BY ALL ORDER BY orders DESC"
Begin with your own:    %s init --stream %s --to duckdb
`, program, d.database(), program, demoStream)
}
