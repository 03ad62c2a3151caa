package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxLines = 900

// forTests are packages that only tests use, beside those of testOnly's test code.
var forTests = []string{"dest/desttest", "lease/leasetest", "kinesis/kinesistest/...", "internal/sim/...", "internal/lint"}

// rules check one file each, and say what is wrong with it.
var rules = map[string]func(*file) []string{
	"lines":       checkLines,
	"no init":     checkInit,
	"no contexts": checkContexts,
	"no sleep":    checkSleep,
	"ascii":       checkASCII,
	"no to-do":    checkToDo,
}

func TestFiles(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			for name, check := range rules {
				for _, fault := range check(f) {
					t.Errorf("%s:%s (%s)", f.name, fault, name)
				}
			}
		}
	}
}

// checkLines: a file that long holds more than one noun or verb.
func checkLines(f *file) []string {
	if n := bytes.Count(f.text, []byte("\n")); n > maxLines && !f.test {
		return []string{fmt.Sprintf("%d: the file is longer than %d lines: take it apart", n, maxLines)}
	}
	return nil
}

// checkInit: what runs at import can't be found by reading main.
func checkInit(f *file) (faults []string) {
	for _, d := range f.tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			faults = append(faults, fmt.Sprintf("%d: init function: call it from where it is needed", f.line(fn.Pos())))
		}
	}
	return faults
}

// checkContexts: a context in a struct outlives the call that it belongs to.
func checkContexts(f *file) (faults []string) {
	name := f.localName("context")
	if f.test || name == "" {
		return nil
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		s, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range s.Fields.List {
			if holds(field.Type, name, "Context") {
				faults = append(faults, fmt.Sprintf("%d: context in a struct: pass it as the first parameter", f.line(field.Pos())))
			}
		}
		return true
	})
	return faults
}

// holds reports whether a type is the selector, or a pointer, slice, map or channel
// of it. A function that takes one is something else.
func holds(t ast.Expr, pkg, name string) bool {
	switch t := t.(type) {
	case *ast.SelectorExpr:
		return isSelector(t, pkg, name)
	case *ast.StarExpr:
		return holds(t.X, pkg, name)
	case *ast.ArrayType:
		return holds(t.Elt, pkg, name)
	case *ast.MapType:
		return holds(t.Key, pkg, name) || holds(t.Value, pkg, name)
	case *ast.ChanType:
		return holds(t.Value, pkg, name)
	}
	return false
}

func isSelector(n ast.Node, pkg, name string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}

// checkSleep: a sleep can't be cancelled.
func checkSleep(f *file) (faults []string) {
	name := f.localName("time")
	if f.test || name == "" || fitsAny([]string{"kinesis/kinesistest/...", "internal/sim/..."}, f.pkg) {
		return nil
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if n != nil && isSelector(n, name, "Sleep") {
			faults = append(faults, fmt.Sprintf("%d: time.Sleep: wait for a timer and a context", f.line(n.Pos())))
		}
		return true
	})
	return faults
}

// demoData may hold other text than ASCII in string literals, beside tests.
var demoData = []string{"cmd/kinetl/orders.go"}

// checkASCII: text that looks alike must be alike; only data shows the rest of Unicode.
func checkASCII(f *file) (faults []string) {
	data := f.test || fitsAny(forTests, f.pkg) || slices.Contains(demoData, f.name)
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile(f.name, -1, len(f.text)), f.text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return faults
		}
		if isASCII(lit) || data && (tok == token.STRING || tok == token.CHAR) {
			continue
		}
		faults = append(faults, fmt.Sprintf("%d: %q is not ASCII", set.Position(pos).Line, lit))
	}
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r > 0x7e }) < 0
}

// Put together, or the rule would find itself.
var toDo = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

// checkToDo: what is not done is in the list of issues, where somebody looks.
func checkToDo(f *file) (faults []string) {
	for i, line := range bytes.Split(f.text, []byte("\n")) {
		if toDo.Match(line) {
			faults = append(faults, fmt.Sprintf("%d: %s", i+1, toDo.Find(line)))
		}
	}
	return faults
}

// vague names say nothing about what is inside.
var vague = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "base"}

func checkPackage(p *pkg) (faults []string) {
	if slices.Contains(vague, strings.TrimSuffix(p.name, "_test")) {
		faults = append(faults, fmt.Sprintf("name %s: name it for what it holds", p.name))
	}
	documented := slices.ContainsFunc(p.files, func(f *file) bool {
		return !f.test && f.tree.Doc != nil && strings.TrimSpace(f.tree.Doc.Text()) != ""
	})
	if !documented {
		faults = append(faults, "no package comment")
	}
	return faults
}

func TestPackages(t *testing.T) {
	for _, p := range packages(t) {
		for _, fault := range checkPackage(p) {
			t.Errorf("package %s: %s", p.path, fault)
		}
	}
}
