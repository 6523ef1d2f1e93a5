// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

const cProgram = `
#include <stdio.h>
#include <string.h>
volatile unsigned long sum;
__attribute__((noinline)) void hot(long n) { for (long i = 0; i < n; i++) sum += i * i; }
__attribute__((noinline)) static void local_one(long n) { for (long i = 0; i < n; i++) sum ^= i; }
void a_weak_and_much_longer_name(long) __attribute__((weak, alias("hot")));
void _hot(long) __attribute__((alias("hot")));
void hot_again(long) __attribute__((alias("hot")));
int main(int argc, char **argv) {
	hot(argc); local_one(argc);
	printf("%lu %zu\n", sum, strlen(argv[0]));
	return puts(argv[0]) < 0;
}
`

const cxxProgram = `
#include <map>
#include <string>
#include <vector>
#define NOINLINE __attribute__((noinline))
namespace ns {
template <class T> struct Box {
	T v;
	NOINLINE T spin(T n, const std::string &s) { volatile T x = 0; for (T i = 0; i < n; i++) x = x + i; return x + s.size(); }
	NOINLINE bool operator<(const Box &o) const { volatile T x = v; return x < o.v; }
};
static NOINLINE int stat(int a, char **) { volatile int x = a; return x; }
namespace {
NOINLINE void anon(std::map<int, std::string> &m) { m[1] = "one"; }
}
}
template <typename F> NOINLINE void call(F f) { f(); }
struct C {
	std::vector<int> v;
	NOINLINE C(int n) : v(n) {}
	virtual NOINLINE ~C() { v.clear(); }
};
extern "C" NOINLINE void plain() { volatile int x = 0; x = x + 1; }
int main(int argc, char **argv) {
	ns::Box<long> b{3}, d{4};
	std::map<int, std::string> m;
	ns::anon(m);
	C c(argc);
	plain();
	call([&] { c.v.push_back(argc); });
	return b.spin(3, m[1]) + ns::stat(argc, argv) + (b < d);
}
`

// buildProgram compiles a program in "c" or "c++" and returns its path.
func buildProgram(t *testing.T, lang, source string, flags ...string) string {
	t.Helper()
	tool := map[string]string{"c": "gcc", "c++": "g++", "clang": "clang"}[lang]
	if lang == "clang" {
		lang = "c"
	}
	testutil.Require(t, testutil.Tool(tool))
	dir := t.TempDir()
	src, out := filepath.Join(dir, "source"), filepath.Join(dir, "program")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-x", lang, "-o", out, src, "-Wl,--build-id"}, flags...)
	cmd := exec.Command(tool, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", tool, args, err, text)
	}
	return out
}

// stripped returns the path of a copy of a program without its .symtab.
func stripped(t *testing.T, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "stripped")
	if text, err := exec.Command("strip", "-o", out, path).CombinedOutput(); err != nil {
		testutil.Lacks(t, "needs strip: %v\n%s", err, text)
	}
	return out
}

func mustReadELF(t testing.TB, path string) *Object {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	o, err := ReadELF(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return o
}
