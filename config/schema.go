package config

import (
	"fmt"
	"strings"

	"github.com/kinetl/kinetl/schemas"
)

// Schema is the JSON Schema (draft 7) of a kind: Source, Destination or Pipeline in
// any case, or "" for a document of any of them.
func Schema(kind string) ([]byte, error) {
	name := strings.ToLower(kind)
	switch name {
	case "":
		name = "kinetl"
	case "source", "destination", "pipeline":
	default:
		return nil, fmt.Errorf("no schema of kind %s: it is source, destination or pipeline", quote(kind))
	}
	return schemas.Files.ReadFile(name + ".schema.json")
}
