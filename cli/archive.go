// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/archive"
	"github.com/gantry-tools/gantry/analysis/binfile"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// archiveFlags are the flags of gantry archive.
type archiveFlags struct {
	input, output string
	symbols       symbolFlags
}

func newArchiveCmd(e *env) *cobra.Command {
	f := new(archiveFlags)
	cmd := &cobra.Command{
		Use:   "archive [flags]",
		Short: "pack a recording with what its report needs, for another machine",
		Long: `Pack a recording, the binaries and symbols that its samples fell into, and the
kernel's symbols into one file. 'gantry report -i FILE' and 'gantry script -i
FILE' read it anywhere, macOS included, and print what they print here. It is a
zip file: unpacked, 'perf report --buildid-dir debug' reads it.`,
		Example: `  gantry archive                       perf.data into perf.gantry
  gantry archive -i web.data -o web.gantry
  gantry report -i web.gantry --sort container,sym`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return f.run(e) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.input, "input", "i", defaultFile, "recording to pack")
	fl.StringVarP(&f.output, "output", "o", "",
		"file to write, - for standard output (default the recording's name with .gantry for .data)")
	f.symbols.register(fl)
	return cmd
}

func (f *archiveFlags) run(e *env) error {
	if f.output == "" {
		f.output = archiveName(f.input)
	}
	if err := refuseTerminal(e, f.output, "name a file with -o"); err != nil {
		return err
	}
	if isArchive(f.input) {
		return hint.Wrap(fmt.Errorf("%s is an archive already", f.input), "give a recording with -i FILE")
	}
	file, err := os.Open(f.input)
	if errors.Is(err, os.ErrNotExist) {
		return hint.Wrap(fmt.Errorf("no recording: %w", err),
			"record one with 'gantry record', or name it with -i FILE")
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = hint.Wrap(fmt.Errorf("%s: %w", f.input, errNotRegular), "write the recording to a file first")
	}
	if err != nil {
		return err
	}
	if isText(f.input) {
		return hint.Wrap(fmt.Errorf("%s is a recording as text", f.input), "pack the file that it was printed from")
	}
	f.symbols.keepText = true
	r, sources, err := openInput(e, f.input, f.symbols)
	if err != nil {
		return err
	}
	defer sources.Close()
	defer r.Close()
	const own = 0o600 // as recordings are
	return writeFile(e, f.output, own, func(out io.Writer) error { return f.pack(e, out, file, r, sources) })
}

// archiveName is where the archive of a recording goes.
func archiveName(input string) string {
	const from, to = ".data", ".gantry"
	if n := len(input) - len(from); n > 0 && input[n:] == from {
		return input[:n] + to
	}
	return input + to
}

// pack writes the recording, and makes the largest report of it to find out what
// any report opens.
func (f *archiveFlags) pack(e *env, out io.Writer, recording io.Reader, r *perfdata.Reader,
	sources *symbolSources) error {
	w := archive.NewWriter(out)
	if err := w.Recording(recording); err != nil {
		return err
	}
	from := sources.options()
	from.Binaries = w.Openers(from.Binaries)
	from.Cache = nil // what is found there is not opened
	s := analysis.NewSession(r, from)
	if _, err := s.Collect(analysis.CollectOptions{Symbols: true, Stacks: true, Addresses: true, Lines: true,
		Inline: true}); err != nil {
		return fmt.Errorf("%s: %w", f.input, err)
	}
	if len(sources.kallsyms) > 0 {
		if err := w.Kallsyms(bytes.NewReader(sources.kallsyms), archivedKernel(sources.recorded)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	n := w.Stats()
	line := fmt.Sprintf("gantry: %s: the recording, %s, %s", f.output,
		plural(n.Binaries, "binary", "binaries"), plural(n.Debug, "file of symbols", "files of symbols"))
	if n.Kallsyms {
		line += ", the kernel's symbols"
	}
	fmt.Fprintf(e.stderr, "%s; %s unpacked\n", line, byteSize(n.Bytes))
	explainWarnings(e.stderr, f.input, s)
	sources.explain(e.stderr)
	explainFailures(e.stderr, s.Unresolved(), 0)
	return nil
}

// isArchive reports whether the file at path begins as an archive does.
func isArchive(path string) bool { return begins(path, archive.Magic) }

// openInput opens a recording and the places that its names come from. An
// archive has both: then nothing of this machine counts but what a flag names.
func openInput(e *env, input string, symbols symbolFlags) (*perfdata.Reader, *symbolSources, error) {
	if isArchive(input) {
		return openArchive(e, input, symbols)
	}
	sources, err := symbols.sources(e)
	if err != nil {
		return nil, nil, err
	}
	r, err := openRecording(input, e.stdin)
	if err != nil {
		sources.Close()
		return nil, nil, err
	}
	return r, sources, nil
}

func openArchive(e *env, input string, symbols symbolFlags) (_ *perfdata.Reader, _ *symbolSources, err error) {
	file, err := os.Open(input)
	if err != nil {
		return nil, nil, err
	}
	s := &symbolSources{closers: []io.Closer{file}}
	defer func() {
		if err != nil {
			s.Close()
			err = fmt.Errorf("%s: %w", input, err)
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	a, err := archive.Open(file, info.Size())
	if err != nil {
		return nil, nil, hint.Wrap(err, "give a file made by 'gantry archive' or 'gantry record'")
	}
	data, size, err := a.Recording()
	if err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, data)
	r, err := perfdata.NewReader(data, size, nil)
	if err != nil {
		return nil, nil, err
	}
	s.archive, s.openers = a, a.Openers()
	return r, s, s.addNamed(e, symbols)
}

// addNamed adds to what an archive has the places that flags name.
func (s *symbolSources) addNamed(e *env, f symbolFlags) (err error) {
	if f.kallsyms != "" {
		if s.named, err = s.readKallsymsFile(f.kallsyms); err != nil {
			return named("--kallsyms", err, "give a copy of /proc/kallsyms, read as root on the recorded machine")
		}
	}
	if f.buildIDDir != "" {
		if err := s.openStore(f.buildIDDir); err != nil {
			return named("--buildid-dir", err,
				"give the directory that the recording's binaries were kept in, as ~/.debug")
		}
		s.openers = append(s.openers, &binfile.Store{Store: s.store})
	}
	return s.addDebuginfod(e, f.debuginfod)
}
