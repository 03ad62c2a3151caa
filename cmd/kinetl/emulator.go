package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl/kinesis/kinesistest"
)

func emulatorCommand() *cobra.Command {
	e := &emulator{}
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Run a Kinesis server on this machine",
		Long: `Serves the Kinesis API from memory until it is stopped, and prints the lines that
point the AWS CLI, the SDKs and kinetl at it. It checks no signatures, so it
listens on this machine only.

Streams that --stream names are there from the start; others are made by
CreateStream. The limits of shards are those of AWS unless --no-limits is given.`,
		Example: `  kinetl emulator --stream orders:2
  aws kinesis list-streams        # in another terminal, after the lines printed`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&e.addr, "addr", "127.0.0.1:4567", "loopback address to listen on; port 0 takes a free one")
	f.StringArrayVar(&e.streams, "stream", nil, "stream to make, NAME or NAME:SHARDS; may be repeated")
	f.StringVar(&e.region, "region", "us-east-1", "region that the ARNs name")
	f.BoolVar(&e.noLimits, "no-limits", false, "do not limit the rates of shards")
	f.BoolVar(&e.asJSON, "json", false, "print one JSON document")
	return cmd
}

// emulator is one run of the command.
type emulator struct {
	addr     string
	streams  []string
	region   string
	noLimits bool
	asJSON   bool
}

func (e *emulator) run(ctx context.Context, out io.Writer) error {
	if err := checkLoopback(e.addr); err != nil {
		return exit(exitDocuments, err)
	}
	server, err := kinesistest.Start(kinesistest.Options{Addr: e.addr, Region: e.region, NoLimits: e.noLimits})
	if err != nil {
		return exit(exitSurroundings, fmt.Errorf("--addr %s: %w", e.addr, err))
	}
	defer server.Close()
	for _, text := range e.streams {
		name, shards, err := parseStream(text)
		if err == nil {
			err = server.CreateStream(name, shards)
		}
		if err != nil {
			return exit(exitDocuments, fmt.Errorf("--stream %s: %w", text, err))
		}
	}
	if err := e.print(out, server.URL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// checkLoopback refuses an address that other machines reach: whoever reaches the
// server reads and writes everything.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--addr %q is not HOST:PORT", addr)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--addr %s is not a loopback address: the emulator checks no signatures, so it listens on 127.0.0.1, [::1] or localhost only", addr)
}

// parseStream reads NAME or NAME:SHARDS.
func parseStream(text string) (name string, shards int, err error) {
	name, number, counted := strings.Cut(text, ":")
	if !counted {
		return name, 1, nil
	}
	if shards, err = strconv.Atoi(number); err != nil || shards < 1 {
		return "", 0, fmt.Errorf("%q is not a number of shards", number)
	}
	return name, shards, nil
}

// print tells how to reach the server, in lines that a shell takes.
func (e *emulator) print(out io.Writer, endpoint string) error {
	env := []struct{ name, value string }{
		{"AWS_ENDPOINT_URL_KINESIS", endpoint},
		{"AWS_ACCESS_KEY_ID", "local"},
		{"AWS_SECRET_ACCESS_KEY", "local"},
		{"AWS_REGION", e.region},
	}
	if e.asJSON {
		doc := struct {
			Endpoint string            `json:"endpoint"`
			Region   string            `json:"region"`
			Env      map[string]string `json:"env"`
		}{endpoint, e.region, map[string]string{}}
		for _, v := range env {
			doc.Env[v.name] = v.value
		}
		return json.NewEncoder(out).Encode(doc)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Kinesis at %s until this program is stopped\n", endpoint)
	for _, v := range env {
		fmt.Fprintf(&b, "export %s=%s\n", v.name, v.value)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
