// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/convert"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/internal/hint"
)

// convertFlags are the flags of gantry convert.
type convertFlags struct {
	input, output string
	compat        bool
	symbols       symbolFlags
}

func newConvertCmd(e *env) *cobra.Command {
	f := new(convertFlags)
	cmd := &cobra.Command{
		Use:   "convert --compat [flags]",
		Short: "write a recording for tools that look for binaries by path",
		Long: `Write a recording for other tools. With --compat it is a perf.data file for
those that find binaries by their path only, such as hotspot and samply: each
binary that a sample fell into is copied below OUTPUT.d, to a path of its own,
and the file names it there. Two containers with different programs at one path
are told apart, also when they are gone. Both stay where they are written: the
paths are absolute.`,
		Example: `  gantry convert --compat                       perf.data into perf.compat.data
  gantry convert --compat -i web.data -o /tmp/web.data
  samply import /tmp/web.data
  hotspot /tmp/web.data`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(e, cmd) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.input, "input", "i", defaultFile, "recording or archive to convert")
	fl.StringVarP(&f.output, "output", "o", "",
		"file to write (default the recording's name with .compat.data for .data)")
	fl.BoolVar(&f.compat, "compat", false, "write perf.data that finds binaries by path")
	f.symbols.register(fl)
	return cmd
}

func (f *convertFlags) run(e *env, cmd *cobra.Command) error {
	if !f.compat {
		return usageError(cmd, errors.New("nothing to convert to: give --compat"))
	}
	if f.input == "-" || f.output == "-" {
		return usageError(cmd, errors.New("a recording is read twice, and its file written out of order: neither "+
			"can be a pipe"))
	}
	if f.output == "" {
		f.output = strings.TrimSuffix(f.input, ".data") + ".compat.data"
	}
	if err := otherFile(f.input, f.output); err != nil {
		return err
	}
	dir, err := f.copyBinaries(e)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := f.write(e, dir); err != nil {
		return err
	}
	n := dir.Stats()
	line := fmt.Sprintf("gantry: %s; in %s.d %s, %s, %s", f.output, filepath.Base(f.output),
		plural(n.Binaries, "binary", "binaries"), plural(n.Debug, "file of symbols", "files of symbols"),
		byteSize(n.Bytes))
	if n.Missing > 0 {
		line += fmt.Sprintf("; %s not found", plural(n.Missing, "binary", "binaries"))
	}
	fmt.Fprintln(e.stderr, line)
	return nil
}

// otherFile refuses to write over what is read, and to what is no file.
func otherFile(input, output string) error {
	in, err := os.Stat(input)
	if errors.Is(err, os.ErrNotExist) {
		return hint.Wrap(fmt.Errorf("no recording: %w", err),
			"record one with 'gantry record', or name it with -i FILE")
	}
	if err != nil {
		return err
	}
	if !in.Mode().IsRegular() {
		return hint.Wrap(fmt.Errorf("%s: %w", input, errNotRegular), "write the recording to a file first")
	}
	switch out, err := os.Stat(output); {
	case err != nil:
	case os.SameFile(in, out):
		return hint.Wrap(fmt.Errorf("%s is the recording itself", output), "name another file with -o FILE")
	case !out.Mode().IsRegular():
		return hint.Wrap(fmt.Errorf("%s: %w", output, errNotRegular), "name another file with -o FILE")
	}
	return nil
}

// copyBinaries makes a report, to find out what the recording needs. The caller
// closes the directory.
func (f *convertFlags) copyBinaries(e *env) (*convert.Binaries, error) {
	r, sources, err := openInput(e, f.input, f.symbols)
	if err != nil {
		return nil, err
	}
	defer sources.Close()
	defer r.Close()
	s := analysis.NewSession(r, sources.options())
	if _, err := s.Collect(analysis.CollectOptions{Symbols: true, Stacks: true, Addresses: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", f.input, err)
	}
	dir, err := convert.NewBinaries(f.output + ".d")
	if err != nil {
		return nil, hint.Wrap(err, "choose a place you may write to with -o FILE")
	}
	if err := dir.Add(s); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	sources.explain(e.stderr)
	explainFailures(e.stderr, s.Unresolved(), 0)
	return dir, nil
}

// write writes the file. A new one that could not be written whole does not stay.
func (f *convertFlags) write(e *env, dir *convert.Binaries) (err error) {
	r, sources, err := openInput(e, f.input, f.symbols)
	if err != nil {
		return err
	}
	defer sources.Close()
	defer r.Close()
	_, err = os.Lstat(f.output)
	isNew := errors.Is(err, os.ErrNotExist)
	const own = 0o600 // as recordings are
	out, err := os.OpenFile(f.output, os.O_RDWR|os.O_CREATE|os.O_TRUNC, own)
	if err != nil {
		return hint.Wrap(err, "choose a place you may write to with -o FILE")
	}
	warnings, err := convert.Write(out, r, dir)
	if err = errors.Join(err, out.Close()); err != nil {
		err = fmt.Errorf("%s: %w", f.output, err)
		if isNew {
			err = errors.Join(err, os.Remove(f.output))
		}
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(e.stderr, "gantry: %s: %s\n", f.input, profile.Printable(w))
	}
	return nil
}
