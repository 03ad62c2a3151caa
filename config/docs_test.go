package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const referenceHead = `# Configuration

<!-- Generated from the structs of package config by "go test ./config -update". -->

A pipeline is described by YAML documents of three kinds: a Source, a Destination and
a Pipeline that joins them. They may stand in one file, separated by ` + "`---`" + `, or in
several; ` + "`kinetl COMMAND FILE...`" + ` takes files, folders and ` + "`-`" + ` for standard input. A key
that is not listed here is refused, and so is an empty value: leave a key out to have
its default.

- Durations are written ` + "`500ms`, `5s`, `10m`, `1h30m`" + `.
- Sizes are written ` + "`64MiB`" + `: KiB, MiB, GiB and TiB are powers of 1024, KB, MB, GB and TB
  powers of 1000; a plain number is bytes.
- Any value but those marked "literal" may be ` + "`{ env: NAME }`" + `, an environment variable.
- Values of type secret may also be ` + "`{ secret: NAME }`" + `: the content of the file NAME in
  the folder that ` + "`--secrets`" + ` names, less one newline at its end, else the environment
  variable NAME. They are never printed.
- ` + "`${NAME}`" + ` is not expanded; it is refused.
`

func TestReferenceIsCurrent(t *testing.T) {
	all := comments(t)
	var b bytes.Buffer
	b.WriteString(referenceHead)
	table := func(title, text, path string, v any) {
		fmt.Fprintf(&b, "\n%s\n\n%s| key | type | default | meaning |\n|---|---|---|---|\n", title, text)
		rows(&b, all, path, reflect.TypeOf(v))
	}
	table("## Source", "", "", Source{})
	table("## Destination", "The keys of `spec.config` depend on the connector and follow below.\n\n", "", Destination{})
	for _, f := range fieldsOf(reflect.TypeFor[DestinationSpec]()) {
		if f.name != "connector" {
			continue
		}
		for _, c := range f.enum {
			table("### connector: "+c, "", "spec.config", reflect.ValueOf(newConfig(c)).Elem().Interface())
		}
	}
	table("## Pipeline", "", "", Pipeline{})
	current(t, "../docs/configuration.md", b.Bytes())
}

// rows writes a table row for each key of a struct type, and of those inside it.
func rows(b *bytes.Buffer, all map[string]string, path string, t reflect.Type) {
	for _, f := range fieldsOf(t) {
		key := join(path, f.name)
		if key == "kind" {
			f.enum = []string{t.Name()}
		}
		kind := kindOf(f.typ)
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, typeOf(f), byDefault(f), comment(all, t, f))
		inner := f.typ
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case kind == kindObject || kind == kindRole:
			rows(b, all, key, inner)
		case isObjects(f.typ):
			rows(b, all, key+"[]", inner.Elem())
		}
	}
}

// isObjects reports whether a type is a list of objects.
func isObjects(t reflect.Type) bool { return kindOf(t) == kindList && kindOf(t.Elem()) == kindObject }

func typeOf(f field) string {
	if len(f.enum) > 0 {
		words := "`" + strings.Join(f.enum, "`, `") + "`"
		if f.literal {
			words += " (literal)"
		}
		return words
	}
	name := map[fieldKind]string{kindText: "text", kindSecret: "secret", kindInt: "whole number", kindFloat: "number",
		kindBool: "true or false", kindDuration: "duration", kindSize: "size", kindList: "list of text",
		kindRole: "text or object", kindObject: "object", kindConfig: "object"}[kindOf(f.typ)]
	switch {
	case isObjects(f.typ):
		name = "list of objects"
	case f.literal:
		name += " (literal)"
	case f.secret:
		name += " (reference only)"
	}
	if f.min != "" {
		name += ", at least " + f.min
	}
	if f.max != "" {
		name += ", at most " + f.max
	}
	return name
}

func byDefault(f field) string {
	switch {
	case f.required:
		return "required"
	case f.def != "":
		return "`" + f.def + "`"
	}
	return f.derived
}
