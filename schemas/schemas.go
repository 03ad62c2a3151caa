// Package schemas holds the JSON Schemas of kinetl's documents, for editors and for
// kinetl schema. They are generated from the structs of package config.
package schemas

import "embed"

// Files holds kinetl.schema.json, for any document, and source.schema.json,
// destination.schema.json and pipeline.schema.json, for one kind each.
//
//go:embed *.schema.json
var Files embed.FS
