// SPDX-License-Identifier: Apache-2.0

package gantry_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gantry-tools/gantry/internal/testutil"
)

const module = "github.com/gantry-tools/gantry"

// A wing is a side of the house: the read side never imports the live side.
type wing int

const (
	both wing = iota // bytes and values, for either side
	read             // builds on every system
	live             // needs the Linux kernel
)

// A tree is a directory and all packages below it.
type tree struct {
	dir   string
	floor int
	wing  wing
}

// house is the picture in docs/ARCHITECTURE.md. The longest dir that matches
// a package counts.
var house = []tree{
	{"internal/elffile", 0, both},
	{"internal/hint", 0, both},
	{"internal/testutil", 0, both},
	{"perf", 1, both},
	{"buildid", 1, both},
	{"internal/linux", 1, live},
	{"internal/linux/procfs", 1, both},
	{"internal/linux/procroot", 1, both},
	{"container", 2, both},
	{"internal/config", 3, both},
	{"analysis", 3, read},
	{"capture", 3, live},
	{"tracens", 3, live},
	{"view", 4, read},
	{"agent", 5, live},
	{"cli", 6, both},
	{"cmd/gantry", 7, both},
}

// neighbours are the imports on one floor that are allowed, one way only.
var neighbours = map[[2]string]string{
	{"internal/linux", "perf"}: "a probe speaks the kernel's ABI, the ABI knows no probe",
	{"tracens", "capture"}:     "a trace system of the kernel's events opens them as a recorder does",
}

// forbidden are uses of the world that a tree must do without, and the
// functions that may have them all the same. A use that ends with a dot is the
// package, less its error values.
var forbidden = []struct {
	dir    string
	uses   []string
	except []string
	why    string
}{
	{"perf", []string{"os."}, []string{"perf/perfdata:Open", "perf/perfdata:Close"}, "only perfdata.Open opens a file"},
	{"perf", []string{"time.Now", "time.Since", "time.Until"}, nil, "it reads no clock"},
	{"analysis/symbol", []string{"os.", "elf.Open", "macho.Open", "pe.Open", "buildinfo.ReadFile", "filepath.EvalSymlinks", "filepath.Glob", "filepath.Walk", "filepath.WalkDir"}, nil, openerWhy},
}

const openerWhy = "it is given an opener, so that a container's path is never the host's"

// openless are the packages that open nothing by themselves, and what by.
var openless = map[string][]string{
	"analysis/symbol": {"os", "os/exec", "io/ioutil", "net", "net/http", "syscall", "golang.org/x/sys/unix", module + "/internal/linux/sys", module + "/internal/linux/procfs"},
}

// TestOpensNothing looks at imports: a name in the source may be any.
func TestOpensNothing(t *testing.T) {
	for _, s := range sources(t) {
		for dir, list := range openless {
			if s.test || !below(s.dir, dir) {
				continue
			}
			for _, name := range imports(s) {
				if slices.Contains(list, name) {
					t.Errorf("%s imports %s: %s", s.path, name, openerWhy)
				}
			}
		}
	}
}

// printers may write to the terminal and end the process.
var printers = []string{"cmd/gantry", "cli"}

// longFunctions are the functions above maxFunction lines, and why.
var longFunctions = map[string]string{}

const (
	maxFunction   = 60
	maxParameters = 5
	maxColumns    = 120
	maxSubject    = 72
	maxFile       = 600
)

// source is one Go file of the module.
type source struct {
	path, dir string
	test      bool
	generated bool
	text      []byte
	file      *ast.File
	fset      *token.FileSet
}

func (s *source) pos(p token.Pos) string { return s.fset.Position(p).String() }

func sources(t *testing.T) []*source {
	t.Helper()
	var list []*source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "tools") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		s, err := parse(name)
		list = append(list, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func parse(name string) (*source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &source{
		path:      filepath.ToSlash(name),
		dir:       path.Dir(filepath.ToSlash(name)),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(file),
		text:      text,
		file:      file,
		fset:      fset,
	}, nil
}

func below(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

// treeOf is the tree a package directory belongs to.
func treeOf(dir string) (tree, bool) {
	var best tree
	for _, tr := range house {
		if below(dir, tr.dir) && len(tr.dir) > len(best.dir) {
			best = tr
		}
	}
	return best, best.dir != ""
}

func imports(s *source) []string {
	var list []string
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func TestImportsGoDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		from, ok := treeOf(s.dir)
		if !ok {
			t.Errorf("%s: package is not in the picture: add it to house and to docs/ARCHITECTURE.md", s.path)
			continue
		}
		for _, imp := range imports(s) {
			dir, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			to, ok := treeOf(dir)
			switch {
			case !ok:
				t.Errorf("%s imports %s, which is not in the picture", s.path, dir)
			case to.dir == "internal/testutil" && from.dir != to.dir:
				t.Errorf("%s imports %s outside a test", s.path, dir)
			case top(from.dir) == top(to.dir) && from.floor == to.floor:
			case neighbours[[2]string{from.dir, to.dir}] != "":
			case to.floor >= from.floor:
				t.Errorf("%s (floor %d) imports %s (floor %d)", s.path, from.floor, dir, to.floor)
			case from.wing == read && to.wing == live:
				t.Errorf("%s (read side) imports %s (live side)", s.path, dir)
			}
		}
	}
}

// top is the tree name that packages of one floor share.
func top(dir string) string {
	if below(dir, "internal/linux") {
		return "internal/linux"
	}
	return dir
}

func TestOneImporterOfUnix(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(imports(s), "golang.org/x/sys/unix") && !s.test && s.dir != "internal/linux/sys" {
			t.Errorf("%s imports golang.org/x/sys/unix: only internal/linux/sys may", s.path)
		}
	}
}

func TestForbiddenUses(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					checkUse(t, s, fn, sel)
				}
				return true
			})
		}
	}
}

func checkUse(t *testing.T, s *source, fn *ast.FuncDecl, sel *ast.SelectorExpr) {
	name := selector(sel)
	for _, rule := range forbidden {
		if !below(s.dir, rule.dir) || slices.Contains(rule.except, s.dir+":"+fn.Name.Name) {
			continue
		}
		for _, use := range rule.uses {
			whole := strings.HasSuffix(use, ".") && strings.HasPrefix(name, use) && !strings.HasPrefix(sel.Sel.Name, "Err")
			if name == use || whole {
				t.Errorf("%s: %s: %s", s.pos(sel.Pos()), name, rule.why)
			}
		}
	}
}

var spdx = regexp.MustCompile(`\A// SPDX-License-Identifier: Apache-2\.0\n\n`)

func TestFileForm(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		if !spdx.Match(s.text) {
			t.Errorf("%s: the first line is not the SPDX licence line and an empty line", s.path)
		}
		if n := bytes.Count(s.text, []byte("\n")); n > maxFile {
			t.Errorf("%s: %d lines; split it", s.path, n)
		}
		if !s.test {
			checkColumns(t, s)
		}
	}
}

// checkColumns refuses lines that are too long, tabs being four columns. What is
// inside a raw string is as long as its text.
func checkColumns(t *testing.T, s *source) {
	raw := make(map[int]bool)
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value[0] == '`' {
			for line := s.fset.Position(lit.Pos()).Line; line <= s.fset.Position(lit.End()).Line; line++ {
				raw[line] = true
			}
		}
		return true
	})
	line := 0
	for text := range strings.Lines(string(s.text)) {
		line++
		columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\t", "    "))
		if columns > maxColumns && !raw[line] {
			t.Errorf("%s:%d: %d columns; break it", s.path, line, columns)
		}
	}
}

// TestCommitSubjects looks at the subjects of commits; some older ones are too long.
func TestCommitSubjects(t *testing.T) {
	out, err := exec.Command("git", "log", "f88f6fc77c14..HEAD", "--no-merges", "--format=%s").Output()
	if err != nil {
		testutil.NotHere(t, "no history of git: %v", err)
	}
	for subject := range strings.Lines(string(out)) {
		if n := utf8.RuneCountInString(strings.TrimSpace(subject)); n > maxSubject {
			t.Errorf("%d columns, more than %d: %s", n, maxSubject, subject)
		}
	}
}

var spdxBPF = regexp.MustCompile(`\A// SPDX-License-Identifier: GPL-2\.0 OR BSD-2-Clause\n`)

// TestBPFForm looks at the C of the BPF programs: licence, length, and that
// what the compiler made of it is there.
func TestBPFForm(t *testing.T) {
	list, err := filepath.Glob("internal/linux/bpf/*/*.[ch]")
	if err != nil || len(list) == 0 {
		t.Fatalf("no BPF programs (%v)", err)
	}
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !spdxBPF.Match(text) {
			t.Errorf("%s: the first line is not the SPDX licence line of BPF programs", name)
		}
		if n := bytes.Count(text, []byte("\n")); n > maxFile {
			t.Errorf("%s: %d lines; split it", name, n)
		}
		stem, program := strings.CutSuffix(name, ".bpf.c")
		if !program {
			continue
		}
		if !bytes.Contains(text, []byte("\n\n//go:build ignore\n\n")) {
			t.Errorf("%s: without //go:build ignore the go tool takes it for cgo's", name)
		}
		for _, made := range []string{stem + "_bpfel.go", stem + "_bpfel.o", path.Dir(name) + "/gen.go"} {
			if _, err := os.Stat(made); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestPackageDocs(t *testing.T) {
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if docs[s.dir] == nil {
			docs[s.dir] = []string{}
		}
		if s.file.Doc != nil {
			docs[s.dir] = append(docs[s.dir], s.file.Doc.Text())
			want := "Package " + s.file.Name.Name + " "
			if s.file.Name.Name == "main" {
				want = "Command " + path.Base(s.dir) + " "
			}
			if !strings.HasPrefix(s.file.Doc.Text(), want) {
				t.Errorf("%s: the package comment does not begin with %q", s.path, want)
			}
		}
	}
	for dir, texts := range docs {
		if len(texts) != 1 {
			t.Errorf("%s: %d files have a package comment, want 1", dir, len(texts))
		}
	}
}

func TestLibraries(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		quiet := !slices.ContainsFunc(printers, func(dir string) bool { return below(s.dir, dir) })
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if quiet && goStatements[s.path] == "" {
					t.Errorf("%s: a library starts a goroutine", s.pos(n.Pos()))
				}
			case *ast.SelectorExpr:
				if quiet && isPrint(n) {
					t.Errorf("%s: a library uses %s", s.pos(n.Pos()), selector(n))
				}
			case *ast.FuncDecl:
				checkFunction(t, s, n)
			}
			return true
		})
	}
}

func checkFunction(t *testing.T, s *source, fn *ast.FuncDecl) {
	if fn.Recv == nil && fn.Name.Name == "init" && !s.generated {
		t.Errorf("%s: init function", s.pos(fn.Pos()))
	}
	lines := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1
	if n := fn.Type.Params.NumFields(); n > maxParameters && !s.generated && !below(s.dir, "internal/linux/sys") {
		t.Errorf("%s: %s has %d parameters; give it a struct", s.pos(fn.Pos()), fn.Name.Name, n)
	}
	if lines > maxFunction && !s.generated && longFunctions[s.path+":"+fn.Name.Name] == "" {
		t.Errorf("%s: %s has %d lines; split it", s.pos(fn.Pos()), fn.Name.Name, lines)
	}
}

func selector(sel *ast.SelectorExpr) string {
	if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil {
		return x.Name + "." + sel.Sel.Name
	}
	return ""
}

func isPrint(sel *ast.SelectorExpr) bool {
	switch selector(sel) {
	case "fmt.Print", "fmt.Printf", "fmt.Println", "os.Exit", "os.Stdout", "os.Stderr",
		"log.Print", "log.Printf", "log.Println", "log.Fatal", "log.Fatalf":
		return true
	}
	return false
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && !below(s.dir, "internal/testutil") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && selector(sel) == "time.Sleep" {
				t.Errorf("%s: a test sleeps; wait for the event", s.pos(sel.Pos()))
			}
			return true
		})
	}
}

// TestSkipsHaveReasons: a skip is one that continuous integration may forbid,
// or one that says why it may not.
func TestSkipsHaveReasons(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && !below(s.dir, "internal/testutil") || slices.Contains(skippers, s.path) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				t.Errorf("%s: a bare skip; use testutil.Require, Lacks or NotHere", s.pos(sel.Pos()))
			}
			return true
		})
	}
}

// skippers have the functions that skip, and a test of them.
var skippers = []string{"internal/testutil/require.go", "internal/testutil/skip.go", "internal/testutil/testutil_test.go"}

func TestNothingUnfinished(t *testing.T) {
	marker := regexp.MustCompile(`\b(TO[D]O|FIX[M]E|XX[X])\b|not yet implemente[d]`)
	for _, s := range sources(t) {
		for i, line := range bytes.Split(s.text, []byte("\n")) {
			if m := marker.Find(line); m != nil {
				t.Errorf("%s:%d: %s", s.path, i+1, m)
			}
		}
	}
}

func TestReadSideBuildsOnDarwin(t *testing.T) {
	args := []string{}
	for _, tr := range house {
		if _, err := os.Stat(tr.dir); err == nil && tr.wing != live {
			args = append(args, "./"+tr.dir+"/...")
		}
	}
	goBuild(t, "darwin", args...)
}

func TestBuildsOnARM64(t *testing.T) { goBuild(t, "linux", "./...") }

func goBuild(t *testing.T, goos string, patterns ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build"}, patterns...)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build for %s/arm64: %v\n%s", goos, err, out)
	}
}

var pictured = regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\|")

// TestPicture compares the packages with the table in docs/ARCHITECTURE.md.
func TestPicture(t *testing.T) {
	text, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var drawn, built []string
	for _, m := range pictured.FindAllSubmatch(text, -1) {
		drawn = append(drawn, string(m[1]))
	}
	for _, s := range sources(t) {
		if !s.test && !slices.Contains(built, s.dir) {
			built = append(built, s.dir)
		}
	}
	for _, dir := range built {
		if !slices.Contains(drawn, dir) {
			t.Errorf("docs/ARCHITECTURE.md does not say what %s is", dir)
		}
	}
	for _, dir := range drawn {
		if !slices.Contains(built, dir) {
			t.Errorf("docs/ARCHITECTURE.md has %s, which does not exist", dir)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)

// links returns the files that a Markdown file links to.
func links(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, m := range link.FindAllSubmatch(text, -1) {
		list = append(list, path.Join(path.Dir(name), string(m[1])))
	}
	return list
}

func TestDocLinks(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	linked := append(links(t, "README.md"), links(t, "docs/ARCHITECTURE.md")...)
	for _, name := range docs {
		if !slices.Contains(linked, filepath.ToSlash(name)) {
			t.Errorf("%s: neither README.md nor docs/ARCHITECTURE.md links to it", name)
		}
	}
	for _, name := range append(docs, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		for _, target := range links(t, name) {
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", name, target, err)
			}
		}
	}
}
