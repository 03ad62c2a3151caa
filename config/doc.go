// Package config reads openetl.io/v1alpha1 documents: Source, Destination and
// Pipeline, several to a file and in several files.
//
//	set, err := config.Load("pipeline.yaml")     // err is Faults: all of them at once
//	err = set.Resolve(config.Secrets{Dir: dir})  // fills in {secret: NAME} and {env: NAME}
//	for _, plan := range set.Pipelines() { ... } // defaults applied, references followed
//
// Load checks everything that can be known without the environment; Resolve checks
// the rest. The structs mirror the documents key by key; their tags are the only
// statement of names, defaults, allowed words and formats, from which the decoder,
// the JSON Schemas and docs/configuration.md all follow:
//
//	yaml     the key
//	default  the value of a key that is left out, as one would write it
//	derived  the same in words, where it depends on other keys; see defaults.go
//	enum     the words allowed, separated by spaces
//	is       a format, see formats.go
//	min, max bounds, as one would write them; numbers are above zero in any case
//	rule     required; literal (no {env} here); secret (never written out in a document)
package config

//go:generate go test -run Current -update .
