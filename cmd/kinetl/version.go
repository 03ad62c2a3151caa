package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the program's version and how it was built", Example: "  kinetl version --json",
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildInfo()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "kinetl %s (%s, %s, DuckDB rows by %s)\n", v.Version, v.Revision, v.Go, v.DuckDB)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

type buildFacts struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	DuckDB   string `json:"duckdb_rows"`
}

func buildInfo() buildFacts {
	b := buildFacts{Version: version, Revision: "unknown revision", DuckDB: "append"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "-tags" && s.Value == "duckdb_arrow":
			b.DuckDB = "Arrow"
		}
	}
	return b
}
