package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Limits of a file. The YAML parser recurses, and its time grows with the square of
// the depth: a hundred thousand brackets keep it busy for minutes.
const (
	maxFile  = 1 << 20 // bytes
	maxLine  = 8 << 10 // bytes
	maxDepth = 64      // open brackets
)

// parse reads the documents of a file and notes its faults.
func (f *file) parse(text string) []*document {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n") // the parser counts some of them twice
	f.lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if at, message := f.tooLarge(text); message != "" {
		f.unusable = true
		f.fault(at, "", message)
		return nil
	}
	var out []*document
	for _, part := range split(f.lines) {
		if d := f.document(part); d != nil {
			out = append(out, d)
		}
	}
	return out
}

func (f *file) tooLarge(text string) (place, string) {
	if len(text) > maxFile {
		return place{1, 1}, fmt.Sprintf("the file is larger than %s", Size(maxFile))
	}
	depth := 0
	for i, line := range f.lines {
		if len(line) > maxLine {
			return place{i + 1, 1}, fmt.Sprintf("the line is longer than %s", Size(maxLine))
		}
		depth += strings.Count(line, "[") + strings.Count(line, "{")
		if depth > maxDepth {
			return place{i + 1, 1}, fmt.Sprintf("more than %d brackets are open", maxDepth)
		}
		depth = max(0, depth-strings.Count(line, "]")-strings.Count(line, "}"))
	}
	return place{}, ""
}

// part is the text of one document and the number of lines before it.
type part struct {
	text  string
	skip  int
	empty bool
}

// split cuts a file at its document markers. A marker at the start of a line is one
// whatever stands around it (YAML 1.2, 9.1.2), so the cut needs no parser; the
// parser in use drops documents after an empty one, and stops at the first error.
func split(lines []string) []part {
	var out []part
	p := part{empty: true}
	var b strings.Builder
	flush := func(next int) {
		p.text = b.String()
		out = append(out, p)
		p = part{skip: next, empty: true}
		b.Reset()
	}
	for i, line := range lines {
		marker := isMarker(line, "---")
		switch {
		case marker:
			flush(i)
			line = "   " + line[3:]
		case isMarker(line, "..."):
			flush(i)
			line = "   " + line[3:]
		}
		trimmed := strings.TrimSpace(line)
		if trimmed != "" && trimmed[0] != '#' && !strings.HasPrefix(line, "%") {
			p.empty = false
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	flush(0)
	return out
}

func isMarker(line, marker string) bool {
	rest, ok := strings.CutPrefix(line, marker)
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// document reads one document; nil when it is empty, or not to be made sense of.
func (f *file) document(p part) *document {
	if p.empty {
		return nil
	}
	body, err := syntax(p.text)
	if err != nil {
		f.unusable = true
		at := place{p.skip + 1, 1}
		message := err.Error()
		var syntaxError yaml.Error
		if errors.As(err, &syntaxError) {
			message = syntaxError.GetMessage()
			if t := syntaxError.GetToken(); t != nil && t.Position != nil {
				at = place{p.skip + t.Position.Line, t.Position.Column}
			}
		}
		f.fault(at, "", "not YAML: "+firstLine(message))
		return nil
	}
	d := &document{file: f, places: map[string]place{}, anchors: map[string]ast.Node{}}
	dec := decoder{document: d, skip: p.skip}
	dec.findAnchors(body)
	d.start = dec.place(body)
	if !dec.root(body) {
		f.unusable = true
		return nil
	}
	return d
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// syntax parses one document.
func syntax(text string) (ast.Node, error) {
	tree, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil, errors.New("there is no document in it")
	}
	return tree.Docs[0].Body, nil
}

// root reads the body of a document into a struct of its kind, and reports whether
// it could tell the kind.
func (d *decoder) root(body ast.Node) bool {
	entries, ok := d.entries("", body)
	if !ok {
		return false
	}
	if len(entries) > 0 {
		d.start = d.place(entries[0].keyNode)
	}
	kind, at := "", d.start
	for _, e := range entries {
		if e.key == "kind" {
			at = d.place(e.node)
			if n, _, ok := d.unwrap("kind", e.node); ok {
				kind, _ = textOf(n)
			}
		}
	}
	switch kind {
	case "Source":
		d.value = new(Source)
	case "Destination":
		d.value = new(Destination)
	case "Pipeline":
		d.value = new(Pipeline)
	case "":
		d.fault("", "write kind: Source, Destination or Pipeline", "kind is missing")
		return false
	default:
		d.file.fault(at, didYouMean(kind, []string{"Source", "Destination", "Pipeline"}), "kind "+quote(kind)+" is not known")
		return false
	}
	d.keys("", entries, reflect.ValueOf(d.value).Elem())
	return true
}
