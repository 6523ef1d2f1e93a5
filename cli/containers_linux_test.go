// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/container"
)

func podList() []containerRow {
	return []containerRow{
		{&container.Container{ID: strings.Repeat("ab", 32), Name: "app", Runtime: "containerd",
			Pod: "shop-6d4cf56db6-x2x9q", PodNamespace: "production",
			Image:      "registry.example.com/team/shop:v3",
			CgroupPath: "/kubepods.slice/kubepods-burstable.slice/cri-containerd-abab.scope"}, container.StatePaused,
			12, nil},
		{&container.Container{ID: "evil", Name: "a\x1b[31m\nb", Runtime: "runc", CgroupPath: "/x"},
			container.StateRunning, 1, nil},
		{&container.Container{Namespaces: container.Namespaces{container.PIDNS: 4026532001}}, container.StateRunning, 3,
			nil},
	}
}

func TestContainersTable(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	for _, tt := range []struct {
		name string
		f    containersFlags
		want string
	}{
		{"table", containersFlags{formatFlags: formatFlags{format: "table"}}, "" +
			"NAME            ID            RUNTIME     STATE    POD     NAMESPACE  IMAGE   PIDS\n" +
			"app             abababababab  containerd  paused   shop-…  producti…  …op:v3    12\n" +
			`a\x1b[31m\x0ab` + "  evil          runc        running  -       -          -          1\n" +
			"pid:4026532001  -             -           running  -       -          -          3\n"},
		{"wide", containersFlags{formatFlags: formatFlags{format: "wide"}}, "" +
			"NAME            ID            RUNTIME     STATE    POD                    NAMESPACE   IMAGE            " +
			"                  PIDS  CGROUP\n" +
			"app             abababababab  containerd  paused   shop-6d4cf56db6-x2x9q  production  " +
			"registry.example.com/team/shop:v3    12  " +
			"/kubepods.slice/kubepods-burstable.slice/cri-containerd-abab.scope\n" +
			`a\x1b[31m\x0ab` + "  evil          runc        running  -                      -           -                                     1  /x\n" +
			"pid:4026532001  -             -           running  -                      -           -                " +
			"                     3  -\n"},
		{"name", containersFlags{formatFlags: formatFlags{format: "name"}},
			"shop-6d4cf56db6-x2x9q/app\na\\x1b[31m\\x0ab\npid:4026532001\n"},
		{"quiet", containersFlags{formatFlags: formatFlags{format: "table"}, quiet: true},
			"abababababab\nevil\npid:4026532001\n"},
		{"quiet, json", containersFlags{formatFlags: formatFlags{format: "json"}, quiet: true},
			"[\n  \"" + strings.Repeat("ab", 32) + "\",\n  \"evil\",\n  \"pid:4026532001\"\n]\n"},
		{"quiet in full", containersFlags{quiet: true, noTrunc: true},
			strings.Repeat("ab", 32) + "\nevil\npid:4026532001\n"},
	} {
		var b bytes.Buffer
		if err := tt.f.write(&b, podList()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, b.String()); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestContainersNone(t *testing.T) {
	for output, want := range map[string]string{"table": "", "name": "", "json": "[]\n"} {
		var b bytes.Buffer
		f := containersFlags{formatFlags: formatFlags{format: output}}
		if err := f.write(&b, nil); err != nil || b.String() != want {
			t.Errorf("%s: %q, %v", output, b.String(), err)
		}
	}
}

func TestContainersWarnings(t *testing.T) {
	var b bytes.Buffer
	warnContainers(&b, []container.Warning{{Where: "docker (/run/docker.sock)",
		Err: fmt.Errorf("dial: %w", fs.ErrPermission)}, {Where: "x\ny", Err: fs.ErrClosed}})
	want := "gantry: docker (/run/docker.sock): dial: permission denied\ngantry: x\\x0ay: file already " +
		"closed\nhint: run as root to see all containers and names\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFit(t *testing.T) {
	cols := func(widths ...int) (out []column) {
		for _, n := range widths {
			out = append(out, column{cells: []string{strings.Repeat("x", n)}, cut: cutEnd})
		}
		return out
	}
	for _, tt := range []struct {
		in    []int
		width int
		want  []int
	}{
		{[]int{10, 20}, 0, []int{10, 20}}, {[]int{10, 20}, 32, []int{10, 20}}, {[]int{10, 20}, 31, []int{10, 19}},
		{[]int{30, 20}, 22, []int{10, 10}}, {[]int{30, 20, 5}, 10, []int{6, 6, 5}},
	} {
		if got := fit(cols(tt.in...), tt.width); !cmp.Equal(got, tt.want) {
			t.Errorf("%v in %d: %v, want %v", tt.in, tt.width, got, tt.want)
		}
	}
	if s := shorten("größe/größe", 6, cutBegin); s != "…größe" || utf8.RuneCountInString(s) != 6 {
		t.Errorf("%q", s)
	}
}
