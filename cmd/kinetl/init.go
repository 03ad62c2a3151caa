package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl/config"
)

func initCommand() *cobra.Command {
	var stream, to string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a pipeline.yaml to begin with",
		Long: `Writes ./pipeline.yaml, with a comment on every setting, and beside it the JSON
Schema with which editors check it. A pipeline.yaml that is there is left alone.`,
		Example: "  kinetl init --stream orders\n  kinetl check pipeline.yaml\n  kinetl run --once pipeline.yaml",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to != "duckdb" {
				return exit(exitDocuments, fmt.Errorf("--to %s: this version writes to duckdb only", to))
			}
			if err := writePipeline(stream); err != nil {
				return exit(exitDocuments, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; next:\n  kinetl check %s\n  kinetl run --once %s\n", pipelineFile, pipelineFile, pipelineFile)
			return nil
		},
	}
	cmd.Flags().StringVar(&stream, "stream", "orders", "`name` or ARN of the stream")
	cmd.Flags().StringVar(&to, "to", "duckdb", "`kind` of destination")
	return cmd
}

const (
	pipelineFile = "pipeline.yaml"
	schemaFile   = ".kinetl/kinetl.schema.json"
)

func writePipeline(stream string) error {
	name := strings.ToLower(config.StreamName(stream))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, name)
	region := "us-east-1"
	if arn := strings.Split(stream, ":"); len(arn) == 6 {
		region = arn[3]
	}
	text := fmt.Sprintf(pipelineTemplate, schemaFile, name, stream, region)
	var faults config.Faults
	if _, err := config.Parse(config.File{Name: pipelineFile, Text: text}); errors.As(err, &faults) {
		return fmt.Errorf("--stream %s: %s", stream, faults[0].Message)
	}
	if err := writeNew(pipelineFile, []byte(text)); err != nil {
		return err
	}
	schema, err := config.Schema("")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(schemaFile), 0o755); err != nil {
		return err
	}
	return os.WriteFile(schemaFile, schema, 0o644)
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already, and is not overwritten: move it away, or go on with it", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

const pipelineTemplate = `# yaml-language-server: $schema=%s
#
# What kinetl loads, and where. Check it with "kinetl check pipeline.yaml", load
# what the stream holds with "kinetl run --once pipeline.yaml", and keep loading
# with "kinetl run pipeline.yaml".
apiVersion: openetl.io/v1alpha1
kind: Source
metadata: { name: %[2]s }
spec:
  connector: kinesis
  # Without a role or keys, the process's own AWS credentials are used.
  # aws: { role: { arn: "arn:aws:iam::111122223333:role/kinetl", externalId: "..." } }
  config:
    region: %-21[4]q # the stream's region
    streams: [%[3]q]              # names or ARNs; left out: every stream that can be listed
    startPosition: earliest       # or latest, or a time such as 2026-11-30T00:00:00Z
    # endpoint: http://127.0.0.1:4567   # of an emulator, or of a VPC endpoint
---
apiVersion: openetl.io/v1alpha1
kind: Destination
metadata: { name: local }
spec:
  connector: duckdb
  config: { path: %[2]s.duckdb }
---
apiVersion: openetl.io/v1alpha1
kind: Pipeline
metadata: { name: %[2]s }
spec:
  source: { name: %[2]s }
  destination:
    name: local
    table: "{stream}"             # a table per stream
    typeChanges: refuse           # a value of another kind than its column is a dead letter; allow: the column becomes JSON
  undecodable: dead_letter        # records that can't be decoded go to <table>_dead_letters; fail: their shard halts
  batch: { rows: 100000, bytes: 64MiB, age: 5s }   # a commit at the first limit
  memory: 256MiB                  # records and DuckDB together
`
