package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder reads the tree of one document into its struct.
type decoder struct {
	*document
	skip int // lines of the file before the document
}

// object reads a mapping into a struct.
func (d *decoder) object(path string, n ast.Node, v reflect.Value) {
	if entries, ok := d.entries(path, n); ok {
		d.keys(path, entries, v)
	}
}

// keys reads the keys of a mapping into a struct, in the order of its fields, so that
// a destination's connector is known before its config.
func (d *decoder) keys(path string, entries []entry, v reflect.Value) {
	fields := fieldsOf(v.Type())
	meant := d.unknown(path, entries, fields)
	for _, f := range fields {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.key == f.name })
		fieldPath := join(path, f.name)
		if i >= 0 {
			d.places[fieldPath] = d.place(entries[i].keyNode)
			d.field(fieldPath, entries[i].node, v.FieldByIndex(f.index), f, v)
			continue
		}
		switch {
		case slices.Contains(meant, f.name):
		case f.required:
			d.fault(path, "", "%s is missing", fieldPath)
		case kindOf(f.typ) == kindConfig:
			d.absentConfig(fieldPath, v)
		}
	}
}

// unknown notes the keys that the struct does not have, and returns those that were
// probably meant: they are not missing as well.
func (d *decoder) unknown(path string, entries []entry, fields []field) (meant []string) {
	known := names(fields)
	var free []string // a key that is there already was not meant
	for _, k := range known {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.key == k }) {
			free = append(free, k)
		}
	}
	for _, e := range entries {
		if slices.Contains(known, e.key) {
			continue
		}
		suggestion := didYouMean(e.key, known)
		if word := nearest(e.key, free); word != "" {
			meant = append(meant, word)
			suggestion = didYouMean(e.key, free)
		} else if home := d.home(e.key); home != "" {
			suggestion = "it belongs under " + home
		}
		d.file.fault(d.place(e.keyNode), suggestion, fmt.Sprintf("unknown key %s in %s", quote(e.key), of(path)))
	}
	return meant
}

// home is the path of the object that has the key, when the document's kind has it
// in one place only.
func (d *decoder) home(key string) string {
	var found []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		for _, f := range fieldsOf(t) {
			if f.name == key {
				found = append(found, path)
			}
			if kindOf(f.typ) == kindObject {
				walk(join(path, f.name), f.typ)
			}
		}
	}
	walk("", reflect.TypeOf(d.value))
	if len(found) != 1 {
		return ""
	}
	return of(found[0])
}

// field reads the value of a key. parent is the struct that v is a field of.
func (d *decoder) field(path string, n ast.Node, v reflect.Value, f field, parent reflect.Value) {
	n, asText, ok := d.unwrap(path, n)
	if !ok {
		return
	}
	if _, null := n.(*ast.NullNode); null {
		d.fault(path, "give it a value, or leave the key out for its default", "%s is empty", path)
		return
	}
	kind := kindOf(f.typ)
	switch {
	case kind.isScalar():
		d.scalar(path, n, asText, v, f)
	case kind == kindRole:
		arn := fieldsOf(roleType)[0]
		if _, mapping := n.(ast.MapNode); mapping && !d.isReference(n) {
			d.object(path, n, v)
			return
		}
		d.scalar(path, n, asText, v.FieldByIndex(arn.index), arn)
	case kind == kindList:
		d.list(path, n, v, f)
	case kind == kindConfig:
		config := newConfig(parent.Addr().Interface().(*DestinationSpec).Connector)
		if config == nil {
			return // the connector is a fault already
		}
		v.Set(reflect.ValueOf(config))
		d.object(path, n, reflect.ValueOf(config).Elem())
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(f.typ.Elem()))
		d.object(path, n, v.Elem())
	default:
		d.object(path, n, v)
	}
}

// absentConfig treats a destination's config that is left out as an empty one.
func (d *decoder) absentConfig(path string, parent reflect.Value) {
	config := newConfig(parent.Addr().Interface().(*DestinationSpec).Connector)
	if config == nil {
		return
	}
	parent.FieldByName("Config").Set(reflect.ValueOf(config))
	d.keys(path, nil, reflect.ValueOf(config).Elem())
}

// list reads a list of scalars or of objects. An empty one would read as "all", which is what
// leaving the key out means.
func (d *decoder) list(path string, n ast.Node, v reflect.Value, f field) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.file.fault(d.place(n), "write it in brackets: ["+excerptOf(n)+"]", path+" must be a list, not "+describe(n))
		return
	}
	if len(seq.Values) == 0 {
		d.fault(path, "name at least one, or leave the key out", "%s is an empty list", path)
		return
	}
	item := f.element()
	v.Set(reflect.MakeSlice(f.typ, len(seq.Values), len(seq.Values)))
	for i, value := range seq.Values {
		d.field(fmt.Sprintf("%s[%d]", path, i), value, v.Index(i), item, reflect.Value{})
		for j := range i {
			if kindOf(item.typ).isScalar() && !v.Index(i).IsZero() && v.Index(i).Equal(v.Index(j)) {
				d.fault(fmt.Sprintf("%s[%d]", path, i), "", "%s holds %s twice", path, quote(v.Index(i).String()))
			}
		}
	}
}

// scalar reads one value, or notes the reference that stands for it.
func (d *decoder) scalar(path string, n ast.Node, asText bool, v reflect.Value, f field) {
	d.places[path] = d.place(n)
	if d.isReference(n) {
		d.reference(path, n, v, f)
		return
	}
	kind := kindOf(f.typ)
	if kind == kindSecret {
		d.hide(n)
	}
	if f.secret {
		d.fault(path, "write "+f.name+": { secret: NAME }", "%s must not be written out", path)
		return
	}
	text, err := typed(n, asText, kind)
	if err != nil {
		var suggestion string
		if t, ok := textOf(n); ok && kind == kindText {
			suggestion = fmt.Sprintf("write it in quotes: %q", t)
		}
		d.fault(path, suggestion, "%s must be %s, not %s", path, kind.noun(), err)
		return
	}
	if strings.Contains(text, "${") {
		d.fault(path, placeholderHint(text), `%s: "${" is not expanded`, path)
		return
	}
	if err := setScalar(v, f, text); err != nil {
		d.refuse(path, err)
	}
}

// refuse notes what setScalar said.
func (d *document) refuse(path string, err error) {
	var word *wordError
	switch {
	case errors.As(err, &word):
		d.fault(path, didYouMean(word.got, word.words), "%s: %s", path, err)
	case errors.Is(err, errEmpty):
		d.fault(path, "give it a value, or leave the key out for its default", "%s is empty", path)
	default:
		d.fault(path, "", "%s: %s", path, err)
	}
}

var placeholder = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)`)

func placeholderHint(text string) string {
	name := "NAME"
	if m := placeholder.FindStringSubmatch(text); m != nil {
		name = m[1]
	}
	return fmt.Sprintf("write { env: %s }, or { secret: %s } for a secret, as the whole value", name, name)
}

// of names an object for messages.
func of(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
