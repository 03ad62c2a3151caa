package config

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// document is one document as it was read: its struct, and where each key stands.
type document struct {
	file    *file
	value   any              // *Source, *Destination or *Pipeline
	start   place            // of its first key
	places  map[string]place // by path, such as spec.config.streams[2]
	refs    []reference      // values still to come from outside
	anchors map[string]ast.Node
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

// header is what the three kinds have in common.
func (d *document) header() *Header {
	switch v := d.value.(type) {
	case *Source:
		return &v.Header
	case *Destination:
		return &v.Header
	case *Pipeline:
		return &v.Header
	}
	return nil
}

// has reports whether the document gives the key, be it by reference.
func (d *document) has(path string) bool {
	_, ok := d.places[path]
	return ok
}

// pending reports whether the key's value, or part of it, is still to come.
func (d *document) pending(path string) bool {
	for _, r := range d.refs {
		if r.path == path || strings.HasPrefix(r.path, path+"[") || strings.HasPrefix(r.path, path+".") {
			return true
		}
	}
	return false
}

// at is the place of a key, or of the nearest one around it that is given.
func (d *document) at(path string) place {
	for path != "" {
		if p, ok := d.places[path]; ok {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return d.start
}

// fault notes a fault at the place of a key.
func (d *document) fault(path, suggestion, message string, args ...any) {
	d.file.fault(d.at(path), suggestion, fmt.Sprintf(message, args...))
}

// file is one file of documents.
type file struct {
	name     string
	lines    []string
	secrets  []string // literal secrets, for masking
	found    []finding
	unusable bool // a document could not be read at all
}

// finding is a fault before its excerpt is made: what has to be masked is known only
// at the end of the file.
type finding struct {
	at                  place
	message, suggestion string
}

func (f *file) fault(at place, suggestion, message string) {
	f.found = append(f.found, finding{at, message, suggestion})
}

// take returns the faults found since the last call.
func (f *file) take() Faults {
	var out Faults
	for _, x := range f.found {
		out = append(out, f.render(x))
	}
	f.found = nil
	return out
}

// render makes the fault of a finding. Places are brought into the file: a parser's
// idea of where an unfinished text ends may lie behind its end.
func (f *file) render(x finding) Fault {
	line := min(max(x.at.line, 1), len(f.lines))
	text := f.lines[line-1]
	column := min(max(x.at.column, 1), utf8.RuneCountInString(text)+1)
	return Fault{
		File: f.name, Line: line, Column: column, Message: x.message, Suggestion: x.suggestion,
		Excerpt: excerpt(text, line, column, f.secrets),
	}
}

// hide masks a literal secret in all excerpts of the file, line by line: an excerpt
// shows one line. Shorter texts than four characters are no secrets, and masking them
// would garble the rest of the line.
func (f *file) hide(text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) >= 4 {
			f.secrets = append(f.secrets, line)
		}
	}
}
