// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// pathFiles opens files by the path of the recording, but "" may not be opened.
type pathFiles map[string]string

func (p pathFiles) Open(ref symbol.Ref) (symbol.File, int64, error) {
	path, ok := p[ref.Path]
	if !ok {
		return nil, 0, os.ErrNotExist
	}
	if path == "" {
		return nil, 0, os.ErrPermission
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, st.Size(), nil
}

func (p pathFiles) Place() string { return "here" }

// sources are the sources of the frames of a recording, by their addresses in
// the samples, which must be different.
func sources(t *testing.T, s *Session, o CollectOptions) []string {
	t.Helper()
	p, err := s.Collect(o)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range p.NumFrames() {
		f := p.Frame(profile.FrameID(i))
		list = append(list, fmt.Sprintf("%q %s %s", f.Name, f.Source, f.Origin))
	}
	return list
}

func TestWhyFramesHaveNoName(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"), testutil.Tool("strip"))
	prog := compile(t, "hot")
	bare := testutil.CompileC(t, "int main(void) { return 0; }\n", "-nostdlib", "-static", "-Wl,-e,main")
	if out, err := exec.Command("strip", bare).CombinedOutput(); err != nil {
		t.Fatalf("strip: %v\n%s", err, out)
	}
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("no ELF file"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRecording(t, 0)
	other := compile(t, "other")
	for i, m := range []*perf.Mmap2{
		mapped(1, 0, "/prog", prog.id), mapped(1, 0, "/bare", prog.id), mapped(1, 0, "/other", other.id),
		mapped(1, 0, "/junk", prog.id), mapped(1, 0, "/gone", prog.id), mapped(1, 0, "/memfd:x (deleted)", prog.id),
		mapped(1, 0, "[stack]", prog.id), mapped(1, 0, "//anon", prog.id), mapped(1, 0, "/secret", prog.id),
	} {
		// Files of one build-id are one binary, which is found once for all.
		if m.Filename != "/prog" && m.Filename != "/other" {
			m.Misc, m.BuildID, m.Ino = perf.MiscUser, nil, uint64(i+1)
		}
		m.Addr = uint64(i+1) << 32
		r.add(m, sample(1, m.Addr+prog.pgoff))
	}
	r.add(sample(1, 0x10), sample(1, 1<<32+0x10)) // the ELF header
	s := r.open(nil, &Options{Binaries: []symbol.Opener{pathFiles{
		"/prog": prog.path, "/bare": bare, "/other": prog.path, "/junk": junk, "/secret": "",
	}}})
	want := []string{
		`"hot" symtab here`, `"" binary without symbols here`, `"" build-id differs `, `"" no valid ELF file `, `"" binary missing `,
		`"" binary deleted `, `"" memory without a file `, `"" generated code without a perf map `, `"" binary not readable `,
		`"" no mapping `, `"" outside of all symbols here`,
	}
	if diff := cmp.Diff(want, sources(t, s, CollectOptions{Symbols: true, Stacks: true, Reasons: true})); diff != "" {
		t.Error(diff)
	}
}

func TestWhyKernelFramesHaveNoName(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, `"" outside of all symbols `},
		{hint.Wrap(symbol.ErrRestricted, "be root"), `"" kernel symbols hidden `},
		{errors.New("of another boot"), `"" kernel symbols missing `},
	} {
		r := newRecording(t, 0)
		in := sample(1, 0xfffffffff0000000)
		in.Misc = perf.MiscKernel
		r.add(kernelMap(0xffffffff81000000), in)
		s := r.open(nil, &Options{Kallsyms: func(k Kernel) (*symbol.Kallsyms, error) {
			if c.err != nil {
				return nil, c.err
			}
			return kallsyms(k)
		}})
		if diff := cmp.Diff([]string{c.want}, sources(t, s, CollectOptions{Symbols: true, Stacks: true, Reasons: true})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCountUserSamples(t *testing.T) {
	r := newRecording(t, 0)
	kernel := sample(1, 0x1000)
	kernel.Misc = perf.MiscKernel
	r.add(
		mapped(1, 0x1000, "/a", buildid.ID{}), sample(1, 0x1000), sample(1, 0x900), kernel,
		sample(2, 0x1000), &perf.Fork{Task: perf.Task{PID: 2, TID: 2, PPID: 1, PTID: 1}}, sample(2, 0x1000),
	)
	got, err := r.open(nil, nil).CountUserSamples()
	if err != nil {
		t.Fatal(err)
	}
	if want := (UserSamples{All: 4, Unmapped: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
