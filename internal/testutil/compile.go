// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// CompileC compiles one C file given as text and returns the path of the
// program, which lives as long as the test. The flags follow -O2,
// -fno-omit-frame-pointer and a build-id, so a later one wins; a program for a
// container's rootfs wants -static.
func CompileC(t testing.TB, src string, flags ...string) string {
	t.Helper()
	Require(t, Tool("gcc"))
	dir := t.TempDir()
	in, out := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog")
	if err := os.WriteFile(in, []byte(src), 0o666); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O2", "-fno-omit-frame-pointer", "-Wl,--build-id=sha1", "-o", out, in}, flags...)
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	return out
}

// SpinProgram compiles a static program that prints "ready" and then burns CPU
// in the function fn, called by the function fn_caller, until it is killed or
// its standard input ends. Each name gives another build-id.
func SpinProgram(t testing.TB, fn string) string {
	t.Helper()
	return CompileC(t, fmt.Sprintf(spinSource, fn), "-static")
}

const spinSource = `
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long sink;

// The linker's build-id leaves the symbol table out: names of one length would
// give one build-id.
__attribute__((used)) static const char name[] = "%[1]s";

// gcc leaves the frame out of small leaf functions even when told not to.
#define KEEP_FRAME __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

__attribute__((noinline)) void %[1]s(unsigned long n) {
	KEEP_FRAME;
	for (unsigned long i = 0; i < n; i++)
		sink += i * i;
}

__attribute__((noinline)) void %[1]s_caller(void) {
	%[1]s(10 * 1000 * 1000);
	sink++;
}

int main(void) {
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char buf[64];
	puts("ready");
	fflush(stdout);
	for (;;) {
		%[1]s_caller();
		if (poll(&in, 1, 0) == 1 && read(0, buf, sizeof buf) <= 0)
			return 0;
	}
}
`
