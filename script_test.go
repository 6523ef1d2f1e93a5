// SPDX-License-Identifier: Apache-2.0

package gantry_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gantry-tools/gantry/cli"
	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"gantry": func() { os.Exit(cli.Main(os.Stdin, os.Stdout, os.Stderr, os.Args[1:])) },
		// One program: samples are told apart by its name.
		"bpfbefore": bpfLoad,
		"bpfseven":  bpfLoad,
		"bpftail":   bpfLoad,
		"bpfbrief":  bpfLoad,
		"bpfinside": bpfLoad,
	})
}

// TestScript runs testdata/script/*.txtar, one behaviour of the command line
// each. $REPO is the source tree, $GANTRY the program. Beside testscript's own commands there are those of scriptCommands.
func TestScript(t *testing.T) {
	repo, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if signal.Ignored(syscall.SIGHUP) {
		// Programs begin with it ignored as well, unless it is caught here.
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP)
		t.Cleanup(func() { signal.Stop(c) }) // after the scripts, which run in parallel
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		// testscript leaves its own one behind when -run selects some scripts.
		WorkdirRoot:         t.TempDir(),
		Cmds:                scriptCommands(),
		UpdateScripts:       testutil.Updating(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values["tb"] = env.T().(testing.TB)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("REPO", repo)
			// demo/run and the benchmark call it by its path.
			gantry, err := exec.LookPath("gantry")
			env.Setenv("GANTRY", gantry)
			return err
		},
	})
}

func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"require":      cmdRequire,
		"spin":         cmdSpin,
		"container":    cmdContainer,
		"bpfcontainer": cmdBPFContainer,
		"lines":        cmdLines,
		"gotool":       cmdGoTool,
		"nobody":       cmdNobody,
		"status":       cmdStatus,
		"serve":        cmdServe,
	}
}

func tb(ts *testscript.TestScript) testing.TB { return ts.Value("tb").(testing.TB) }

// cmdRequire skips the script, with the reason, unless the machine has all:
//
//	require root perf-events cgroup2 tracefs btf tool:perf kernel:5.8 cap:CAP_BPF
func cmdRequire(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: require NAME...")
	}
	for _, arg := range args {
		testutil.Require(tb(ts), requirement(ts, arg))
	}
}

func requirement(ts *testscript.TestScript, name string) testutil.Requirement {
	kind, arg, _ := strings.Cut(name, ":")
	switch kind {
	case "root":
		return testutil.Root
	case "perf-events":
		return testutil.PerfEvents
	case "cgroup2":
		return testutil.CgroupV2
	case "tracefs":
		return testutil.Tracefs
	case "btf":
		return testutil.BTF
	case "tool":
		return testutil.Tool(arg)
	case "kernel":
		return testutil.Kernel(arg)
	case "cap":
		return testutil.Cap(arg)
	}
	ts.Fatalf("require: unknown requirement %q", name)
	return nil
}

// cmdSpin compiles a program that burns CPU in function FN until it is killed:
//
//	spin FN FILE
func cmdSpin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: spin FN FILE")
	}
	ts.Check(os.Rename(testutil.SpinProgram(tb(ts), args[0]), ts.MkAbs(args[1])))
}

// cmdContainer starts a runc container that burns CPU in function FN of its
// /app/server, and sets $NAME_ID, $NAME_PID and $NAME_CGROUP:
//
//	container NAME FN [CGROUP]
func cmdContainer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: container NAME FN [CGROUP]")
	}
	name := args[0]
	spec := testutil.ContainerSpec{
		Name:  name,
		Files: map[string]string{"/app/server": testutil.SpinProgram(tb(ts), args[1])},
		Args:  []string{"/app/server"},
		Ready: "ready",
	}
	if len(args) == 3 {
		spec.CgroupPath = args[2]
	}
	c := testutil.StartContainer(tb(ts), spec)
	ts.Setenv(name+"_ID", c.ID)
	ts.Setenv(name+"_PID", strconv.Itoa(c.PID))
	ts.Setenv(name+"_CGROUP", c.CgroupPath)
}

// cmdLines checks how many lines a file has:
//
//	lines FILE MIN [MAX]
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: lines FILE MIN [MAX]")
	}
	n := strings.Count(ts.ReadFile(args[0]), "\n")
	low, err := strconv.Atoi(args[1])
	ts.Check(err)
	high := int(^uint(0) >> 1)
	if len(args) == 3 {
		high, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	if n < low || n > high {
		ts.Fatalf("%s has %d lines, want %s", filepath.Base(args[0]), n, strings.Join(args[1:], " to "))
	}
}

// cmdGoTool builds a program of the tools module:
//
//	gotool NAME FILE
func cmdGoTool(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gotool NAME FILE")
	}
	cmd := exec.Command("go", "build", "-o", ts.MkAbs(args[1]), "./"+args[0])
	cmd.Dir = filepath.Join(ts.Getenv("REPO"), "tools")
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("go build: %v\n%s", err, out)
	}
}

// cmdNobody is exec without any privilege: user and group 65534. The working
// directory is made writable for all.
//
//	[!] nobody PROGRAM [ARG...]
func cmdNobody(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] nobody PROGRAM [ARG...]")
	}
	// testscript's directories are open to their owner only.
	bin, root := filepath.Dir(ts.Getenv("GANTRY")), filepath.Dir(ts.Getenv("WORK"))
	for _, dir := range []string{bin, filepath.Dir(bin), root, filepath.Dir(root)} {
		ts.Check(os.Chmod(dir, 0o755))
	}
	ts.Check(os.Chmod(ts.Getenv("WORK"), 0o777))
	argv := []string{"--reuid=65534", "--regid=65534", "--clear-groups", "--"}
	err := ts.Exec("setpriv", append(argv, args...)...)
	if neg && err == nil {
		ts.Fatalf("unexpected success")
	}
	if !neg {
		ts.Check(err)
	}
}

// cmdStatus is exec of a program that ends with the exit status N:
//
//	status N PROGRAM [ARG...]
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// cmdServe serves a build-id store until the script ends, and makes it the
// debuginfod server of the commands that follow:
//
//	serve DIR
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	cmd := exec.Command(ts.Getenv("GANTRY"), "buildid", "serve", "--listen", "127.0.0.1:0", "--buildid-dir", ts.MkAbs(args[0]))
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		ts.Check(cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			ts.Fatalf("gantry buildid serve: %v", err)
		}
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	ts.Check(err)
	_, url, ok := strings.Cut(strings.TrimSpace(line), "serving at ")
	if !ok {
		ts.Fatalf("gantry buildid serve: %s", line)
	}
	ts.Setenv("DEBUGINFOD_URLS", url)
}
