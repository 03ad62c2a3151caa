package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl/awsconf"
)

const (
	requestRecords = 500     // Source: PutRecords
	requestBytes   = 5 << 20 // half of what PutRecords takes, whose accounting of a request is not documented
	firstPutWait   = 100 * time.Millisecond
	maxPutWait     = 10 * time.Second
	showPutEvery   = 5 * time.Second
)

func putCommand() *cobra.Command {
	p := &putter{}
	cmd := &cobra.Command{
		Use:   "put STREAM [FILE|-]",
		Short: "Put the lines of a file into a stream, each as a record",
		Long: `Puts each line of FILE, or of stdin, into STREAM (a name or an ARN), in their
order. Empty lines are left out. With --array the file is one JSON array and its
elements are the records.

--key names the top-level field whose value is the partition key; records without
it, and all records without --key, are spread over the shards by a hash of their
bytes. What a shard refuses because of its limits is sent again, before anything
behind it, for as long as it takes. Within one request of up to 500 records a
refused record may come behind a later one of its key, and a request whose answer
was lost is sent again whole: the stream may then hold its records twice.

A record that the stream can't take is named with its line, the others are put,
and the exit code is 1.`,
		Example: `  kinetl put orders orders.jsonl --key customer
  kinetl put movies movies.json --array --key title
  generate | kinetl put orders --endpoint http://127.0.0.1:4567`,
		Args: argCount(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.stream, p.log = args[0], cmd.ErrOrStderr()
			file := "-"
			if len(args) == 2 {
				file = args[1]
			}
			return p.run(cmd.Context(), file, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	p.settings = awsFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&p.key, "key", "", "top-level field whose value is the partition key")
	f.BoolVar(&p.array, "array", false, "the file is a JSON array of records")
	f.BoolVar(&p.asJSON, "json", false, "print the summary as one JSON document")
	return cmd
}

// putter is one run of the command.
type putter struct {
	stream   string
	settings *awsconf.Settings
	key      string
	array    bool
	asJSON   bool
	log      io.Writer

	client  *awskinesis.Client
	limit   int // bytes of a record with its key
	batch   []types.PutRecordsRequestEntry
	bytes   int // of batch
	sum     putSummary
	started time.Time
	shown   time.Time
}

// putSummary is what a run comes to.
type putSummary struct {
	Stream     string  `json:"stream"`
	Put        int64   `json:"records_put"`
	Refused    int64   `json:"records_refused"`
	Empty      int64   `json:"empty_lines"`
	WithoutKey int64   `json:"records_without_key"` // only counted where --key asks for one
	Resent     int64   `json:"records_resent"`
	Bytes      int64   `json:"bytes_put"`
	Seconds    float64 `json:"seconds"`
}

func (p *putter) run(ctx context.Context, file string, stdin io.Reader, out io.Writer) error {
	in := stdin
	if file == "-" {
		file = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return exit(exitDocuments, err)
		}
		defer f.Close()
		in = f
	}
	var err error
	if p.client, err = kinesisClient(ctx, p.settings); err != nil {
		return err
	}
	if err := p.describe(ctx); err != nil {
		return classify(fmt.Errorf("describe stream %s: %w", p.stream, err))
	}
	p.started = time.Now()
	p.shown = p.started
	p.sum.Stream = p.stream
	err = p.putAll(ctx, p.open(file, in))
	p.sum.Seconds = time.Since(p.started).Seconds()
	if printErr := p.print(out); printErr != nil {
		return printErr
	}
	switch {
	case ctx.Err() != nil:
		return exit(exitFailed, fmt.Errorf("stopped after %d records; those of the last request may be in the stream too", p.sum.Put))
	case err != nil:
		return classify(err)
	case p.sum.Refused > 0:
		return exit(exitFailed, fmt.Errorf("%d records were not put, each named above", p.sum.Refused))
	}
	return nil
}

// describe makes sure that the stream is there, and asks how large a record may be.
func (p *putter) describe(ctx context.Context) error {
	in := &awskinesis.DescribeStreamSummaryInput{}
	in.StreamName, in.StreamARN = p.reference()
	answer, err := p.client.DescribeStreamSummary(ctx, in)
	if err != nil {
		return err
	}
	p.limit = 1 << 20 // where the service does not say
	if kib := aws.ToInt32(answer.StreamDescriptionSummary.MaxRecordSizeInKiB); kib > 0 {
		p.limit = int(kib) << 10
	}
	return nil
}

// reference is the stream's name or its ARN.
func (p *putter) reference() (name, arn *string) {
	if strings.HasPrefix(p.stream, "arn:") {
		return nil, &p.stream
	}
	return &p.stream, nil
}

func (p *putter) open(file string, in io.Reader) inputs {
	if p.array {
		return &elements{file: file, in: json.NewDecoder(in)}
	}
	return &lines{file: file, in: bufio.NewReaderSize(in, 64<<10), limit: p.limit}
}

// putAll puts every record. Those read before an error of the file are put too.
func (p *putter) putAll(ctx context.Context, records inputs) error {
	for {
		r, err := records.next()
		if err != nil {
			sendErr := p.send(ctx)
			if errors.Is(err, io.EOF) {
				return sendErr
			}
			return errors.Join(sendErr, err)
		}
		if err := p.add(ctx, r); err != nil {
			return err
		}
	}
}

// add takes a record into the open request, sending that before if it is full.
func (p *putter) add(ctx context.Context, r input) error {
	if r.size == 0 {
		p.sum.Empty++
		return nil
	}
	key, own, err := partitionKey(r.data, p.key)
	if err == nil && r.size+len(key) > p.limit {
		err = fmt.Errorf("the record and its key have %d bytes, more than the %d that the stream takes", r.size+len(key), p.limit)
	}
	if err != nil {
		fmt.Fprintf(p.log, "%s: %s\n", r.place, err)
		p.sum.Refused++
		return nil
	}
	if p.key != "" && !own {
		p.sum.WithoutKey++
	}
	size := len(r.data) + len(key)
	if len(p.batch) == requestRecords || len(p.batch) > 0 && p.bytes+size > requestBytes {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	p.batch = append(p.batch, types.PutRecordsRequestEntry{Data: r.data, PartitionKey: &key})
	p.bytes += size
	return nil
}

// send sends the open request until the service has taken every record of it: what
// follows must not overtake a record of its key.
func (p *putter) send(ctx context.Context) error {
	wait := firstPutWait
	for len(p.batch) > 0 {
		refused, err := p.request(ctx)
		if err != nil {
			return fmt.Errorf("put into stream %s: %w", p.stream, err)
		}
		p.show()
		if refused == 0 {
			break
		}
		p.sum.Resent += int64(refused)
		if !sleepUntil(ctx, time.Now().Add(wait/2+rand.N(wait/2))) {
			return ctx.Err()
		}
		wait = min(2*wait, maxPutWait)
	}
	p.bytes = 0
	return nil
}

// request makes one call and keeps in the batch what it refused.
func (p *putter) request(ctx context.Context) (refused int, err error) {
	in := &awskinesis.PutRecordsInput{Records: p.batch}
	in.StreamName, in.StreamARN = p.reference()
	answer, err := p.client.PutRecords(ctx, in)
	if err != nil {
		return 0, err
	}
	if len(answer.Records) != len(p.batch) {
		return 0, fmt.Errorf("the answer is about %d records, %d were sent", len(answer.Records), len(p.batch))
	}
	// Not in place: the SDK may still hold the slice of this request.
	var rest []types.PutRecordsRequestEntry
	for i, r := range answer.Records {
		if r.ErrorCode != nil {
			rest = append(rest, p.batch[i])
			continue
		}
		p.sum.Put++
		p.sum.Bytes += int64(len(p.batch[i].Data))
	}
	p.batch = rest
	return len(rest), nil
}

// show tells now and then how far it is.
func (p *putter) show() {
	if time.Since(p.shown) < showPutEvery {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.log, "%9d records put  %6.1f MB/s  %d sent again\n", p.sum.Put, float64(p.sum.Bytes)/1e6/time.Since(p.started).Seconds(), p.sum.Resent)
}

func (p *putter) print(out io.Writer) error {
	if p.asJSON {
		return json.NewEncoder(out).Encode(p.sum)
	}
	text := fmt.Sprintf("%d records put into stream %s", p.sum.Put, p.stream)
	for _, also := range []struct {
		n    int64
		what string
	}{
		{p.sum.Refused, "not put"}, {p.sum.WithoutKey, "without field " + p.key}, {p.sum.Empty, "empty lines left out"}, {p.sum.Resent, "sent again"},
	} {
		if also.n > 0 {
			text += fmt.Sprintf(", %d %s", also.n, also.what)
		}
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
