package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kinetl/kinetl/config"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema [source|destination|pipeline]",
		Short:   "Print the JSON Schema of documents, for editors",
		Example: "  kinetl schema > kinetl.schema.json\n  kinetl schema pipeline",
		Args:    argCount(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := config.Schema(strings.Join(args, ""))
			if err != nil {
				return exit(exitDocuments, err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
