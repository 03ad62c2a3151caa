package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// place is where a node stands in the file.
func (d *decoder) place(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // the token of a block mapping is its first colon
	}
	if n == nil || reflect.ValueOf(n).IsNil() || n.GetToken() == nil || n.GetToken().Position == nil {
		return d.start
	}
	p := n.GetToken().Position
	return place{p.Line + d.skip, p.Column}
}

// entry is one key of a mapping.
type entry struct {
	key     string
	keyNode ast.Node
	node    ast.Node
}

// looksSecret matches keys whose values no excerpt should show.
var looksSecret = regexp.MustCompile(`(?i)secret|passw|token|key`)

// entries lists the keys of a mapping; it notes a fault for anything else.
func (d *decoder) entries(path string, n ast.Node) ([]entry, bool) {
	n, _, ok := d.unwrap(path, n)
	if !ok {
		return nil, false
	}
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.file.fault(d.place(n), "", of(path)+" must be an object of keys and values, not "+describe(n))
		return nil, false
	}
	seen := map[string]place{}
	var out []entry
	for _, v := range values {
		e := entry{keyNode: v.Key, node: v.Value}
		switch k := v.Key.(type) {
		case *ast.StringNode:
			e.key = k.Value
		case *ast.MergeKeyNode:
			d.file.fault(d.place(v.Key), "write the keys out", "merge keys are not supported")
			continue
		default:
			d.file.fault(d.place(v.Key), "", fmt.Sprintf("a key of %s is not text", of(path)))
			continue
		}
		if looksSecret.MatchString(e.key) && !d.isReference(e.node) {
			d.hide(e.node) // whether or not it turns out to be a key of ours
		}
		if first, ok := seen[e.key]; ok {
			d.file.fault(d.place(v.Key), "", fmt.Sprintf("key %s is given twice in %s, first on line %d", quote(e.key), of(path), first.line))
			continue
		}
		seen[e.key] = d.place(v.Key)
		out = append(out, e)
	}
	return out, true
}

// typed is the text of a node whose type suits the kind; the error describes the
// node otherwise.
func typed(n ast.Node, asText bool, kind fieldKind) (string, error) {
	text, ok := textOf(n)
	if !ok {
		return "", errors.New(describe(n))
	}
	isText := asText
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		isText = true
	}
	_, isInt := n.(*ast.IntegerNode)
	_, isFloat := n.(*ast.FloatNode)
	_, isBool := n.(*ast.BoolNode)
	fits := isText
	switch kind {
	case kindInt:
		fits = isInt && !asText
	case kindFloat:
		fits = (isInt || isFloat) && !asText
	case kindBool:
		fits = isBool && !asText
	case kindSize:
		fits = isText || isInt
	}
	if !fits {
		return "", errors.New(describe(n))
	}
	return text, nil
}

// textOf is the text of a scalar node.
func textOf(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	case *ast.IntegerNode:
		return fmt.Sprint(s.Value), true
	case *ast.FloatNode:
		return s.Token.Value, true
	case *ast.BoolNode:
		return fmt.Sprint(s.Value), true
	}
	return "", false
}

// describe names what a node is, for messages. It never shows the value.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.NullNode:
		return "nothing"
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "an object"
	}
	return "something else"
}

func excerptOf(n ast.Node) string {
	if text, ok := textOf(n); ok && len(text) < 40 {
		return text
	}
	return "..."
}

// hide masks the texts below a node in all excerpts.
func (d *decoder) hide(n ast.Node) {
	ast.Walk(visitor(func(n ast.Node) {
		if text, ok := textOf(n); ok {
			d.file.hide(text)
		}
	}), n)
}

// visitor calls a function for every node.
type visitor func(ast.Node)

// Visit implements ast.Visitor.
func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}

// findAnchors notes what each alias of the document stands for.
func (d *decoder) findAnchors(body ast.Node) {
	ast.Walk(visitor(func(n ast.Node) {
		if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil && a.Value != nil {
			d.anchors[a.Name.GetToken().Value] = a.Value
		}
	}), body)
}

// unwrap follows anchors and aliases and takes off the tag !!str.
func (d *decoder) unwrap(path string, n ast.Node) (inner ast.Node, asText, ok bool) {
	const deep = 16 // an alias may lead to itself
	for range deep {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			target := d.anchors[x.Value.GetToken().Value]
			if target == nil {
				d.file.fault(d.place(n), "", fmt.Sprintf("no anchor %s in this document", quote(x.Value.GetToken().Value)))
				return nil, false, false
			}
			n = target
		case *ast.TagNode:
			if x.Start.Value != string(token.StringTag) {
				d.file.fault(d.place(n), "leave it out", fmt.Sprintf("the tag %s is not supported", quote(x.Start.Value)))
				return nil, false, false
			}
			n, asText = x.Value, true
		case nil:
			d.fault(path, "", "%s has no value", of(path))
			return nil, false, false
		default:
			return n, asText, true
		}
	}
	d.fault(path, "", "%s is an alias of itself", of(path))
	return nil, false, false
}
