package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// reference is a value that is not in the document: {secret: NAME} or {env: NAME}.
type reference struct {
	path   string
	secret bool
	name   string
	into   reflect.Value
	field  field
}

// refName is what a reference may name. It is the name of a file too, so it has no
// separator and does not begin with a dot.
var refName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// isReference reports whether a node is meant as a reference: no object that a
// document may hold has a key env or secret.
func (d *decoder) isReference(n ast.Node) bool {
	for _, v := range mapping(n) {
		if k, ok := v.Key.(*ast.StringNode); ok && (k.Value == "env" || k.Value == "secret") {
			return true
		}
	}
	return false
}

func mapping(n ast.Node) []*ast.MappingValueNode {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

// reference notes the reference that a node is.
func (d *decoder) reference(path string, n ast.Node, v reflect.Value, f field) {
	entries, ok := d.entries(path, n)
	if !ok || len(entries) != 1 {
		d.fault(path, "", "%s: a reference has one key, env or secret", path)
		return
	}
	r := reference{path: path, secret: entries[0].key == "secret", into: v, field: f}
	target, _, ok := d.unwrap(path, entries[0].node)
	if !ok {
		return
	}
	r.name, ok = textOf(target)
	switch {
	case f.literal:
		d.fault(path, "", "%s must be written out: it tells what the document is", path)
	case !ok || !refName.MatchString(r.name):
		d.fault(path, "", "%s: %s is not the name of a variable: letters, digits, '_', '-' and '.'", path, quote(r.name))
	case r.secret && kindOf(f.typ) != kindSecret:
		d.fault(path, "write { env: "+r.name+" }", "%s is not kept secret, so it can't come from a secret", path)
	default:
		d.refs = append(d.refs, r)
	}
}

// Secrets says where references are looked up. The zero value: everything in the
// environment.
type Secrets struct {
	// Dir is a folder whose file NAME holds the secret NAME; one newline at the end
	// is taken off. A secret without a file is looked for in the environment.
	Dir string
	// LookupEnv reads a variable; nil: os.LookupEnv.
	LookupEnv func(name string) (string, bool)
}

// find looks a reference up. The error says where it was looked for.
func (s Secrets) find(r reference) (string, error) {
	where := "there is no environment variable " + r.name
	if r.secret && s.Dir != "" {
		name := filepath.Join(s.Dir, r.name)
		content, err := os.ReadFile(name)
		if err == nil {
			text := strings.TrimSuffix(string(content), "\n")
			return strings.TrimSuffix(text, "\r"), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read secret: %w", err)
		}
		where = "there is no file " + name + ", and no environment variable " + r.name
	}
	lookup := s.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	text, ok := lookup(r.name)
	if !ok {
		return "", errors.New(where)
	}
	return text, nil
}

// Resolve fills in every reference and checks what could not be checked without
// them. The error is Faults; references that were found are then filled in, and
// Resolve may be called again for the others.
func (s *Set) Resolve(from Secrets) error {
	for _, d := range s.documents {
		var missing []reference
		for _, r := range d.refs {
			text, err := from.find(r)
			if err != nil {
				suggestion := "set it"
				if r.secret && from.Dir == "" {
					suggestion = "set it, or name a folder of secrets with --secrets DIR"
				}
				d.fault(r.path, suggestion, "%s: %s", r.path, err)
				missing = append(missing, r)
				continue
			}
			if err := setScalar(r.into, r.field, text); err != nil {
				d.fault(r.path, "", "%s, as %s has it: %s", r.path, r.name, err)
				missing = append(missing, r)
			}
		}
		d.refs = missing
	}
	s.check()
	return s.faults().err()
}
