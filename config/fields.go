package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is what a struct field's tags say about a key.
type field struct {
	name     string // the key
	index    []int  // of the struct field, for reflect
	typ      reflect.Type
	def      string   // default, as written
	derived  string   // default in words
	enum     []string // allowed words
	is       string   // key of formats
	min, max string   // bounds, as written
	required bool
	literal  bool // no {env}: the documents could not be understood without it
	secret   bool // not written out
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	secretType   = reflect.TypeFor[Secret]()
	roleType     = reflect.TypeFor[Role]()
)

// fieldsOf lists the keys of a struct type, those of embedded structs included.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		key := sf.Tag.Get("yaml")
		if sf.Anonymous {
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				out = append(out, f)
			}
			continue
		}
		rules := strings.Fields(sf.Tag.Get("rule"))
		out = append(out, field{
			name: key, index: []int{i}, typ: sf.Type,
			def: sf.Tag.Get("default"), derived: sf.Tag.Get("derived"),
			enum: strings.Fields(sf.Tag.Get("enum")), is: sf.Tag.Get("is"),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"),
			required: slices.Contains(rules, "required"),
			literal:  slices.Contains(rules, "literal"),
			secret:   slices.Contains(rules, "secret"),
		})
	}
	return out
}

// names lists the keys.
func names(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

// element is the field of one item of a list.
func (f field) element() field {
	f.typ = f.typ.Elem()
	return f
}

// kindOf groups the types that fields have.
type fieldKind uint8

const (
	kindText fieldKind = iota
	kindSecret
	kindInt
	kindFloat
	kindBool
	kindDuration
	kindSize
	kindList
	kindRole
	kindObject
	kindConfig // the config of a destination, which depends on its connector
)

func kindOf(t reflect.Type) fieldKind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case durationType:
		return kindDuration
	case sizeType:
		return kindSize
	case secretType:
		return kindSecret
	case roleType:
		return kindRole
	}
	switch t.Kind() {
	case reflect.Int:
		return kindInt
	case reflect.Float64:
		return kindFloat
	case reflect.Bool:
		return kindBool
	case reflect.Slice:
		return kindList
	case reflect.Struct:
		return kindObject
	case reflect.Interface:
		return kindConfig
	}
	return kindText
}

// isScalar reports whether a key of the kind takes one value.
func (k fieldKind) isScalar() bool { return k < kindList }

// noun is what a key of the kind takes, for messages.
func (k fieldKind) noun() string {
	return [...]string{"text", "a secret", "a whole number", "a number", "true or false",
		"a duration, such as 5s", "a size, such as 64MiB", "a list", "a role's ARN or an object",
		"an object", "an object"}[k]
}
