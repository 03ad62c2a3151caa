package lint

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pkg is a package of this module with all its files, whatever their build tags.
type pkg struct {
	path  string // below the module's; the root is "."
	name  string
	files []*file
}

// file is one Go file.
type file struct {
	pkg  string
	name string // below the module's folder
	test bool
	text []byte
	set  *token.FileSet
	tree *ast.File
}

func (f *file) line(p token.Pos) int { return f.set.Position(p).Line }

func (f *file) imports() (paths []string) {
	for _, spec := range f.tree.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// localName is what the file calls a package, or nothing when it doesn't import it.
func (f *file) localName(path string) string {
	for _, spec := range f.tree.Imports {
		if spec.Path.Value != strconv.Quote(path) {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path[strings.LastIndexByte(path, '/')+1:]
	}
	return ""
}

func parse(pkg, name string, text []byte) (*file, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &file{pkg: pkg, name: name, test: strings.HasSuffix(name, "_test.go"), text: text, set: set, tree: tree}, nil
}

// goList runs go list in the module's folder.
func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	return out
}

func modulePath(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(string(goList(t, "-m")))
}

// packages lists and parses the module.
func packages(t *testing.T) []*pkg {
	t.Helper()
	module := modulePath(t)
	fields := []string{"GoFiles", "CgoFiles", "IgnoredGoFiles", "TestGoFiles", "XTestGoFiles"}
	dec := json.NewDecoder(strings.NewReader(string(goList(t, "-e", "-json=ImportPath,Name,Dir,"+strings.Join(fields, ","), "./..."))))
	var out []*pkg
	for {
		var listed struct {
			ImportPath, Name, Dir                                        string
			GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list -json: %v", err)
		}
		path, _ := relative(module, listed.ImportPath)
		p := &pkg{path: path, name: listed.Name}
		for _, name := range slices.Concat(listed.GoFiles, listed.CgoFiles, listed.IgnoredGoFiles, listed.TestGoFiles, listed.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(listed.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			f, err := parse(path, filepath.ToSlash(filepath.Join(path, name)), text)
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, f)
		}
		out = append(out, p)
	}
	if len(out) < 5 {
		t.Fatalf("go list found %d packages", len(out))
	}
	return out
}
