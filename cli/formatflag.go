// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// formatFlags are --format and -o of commands that print a table or data: -o is a
// file, as everywhere.
type formatFlags struct {
	format, output string
	formats        []string // the first is the default
}

func (f *formatFlags) register(cmd *cobra.Command, formats ...string) {
	f.formats = formats
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", formats[0], strings.Join(formats, ", "))
	fl.StringVarP(&f.output, "output", "o", "-", "`FILE` to write, - for standard output")
	complete(cmd, "format", false, formats)
}

// parse checks the flags. Up to gantry 0.1 -o was the format.
func (f *formatFlags) parse(cmd *cobra.Command) error {
	given := cmd.Flags().Changed("format")
	if !given && slices.Contains(f.formats, f.output) {
		f.format, f.output = f.output, "-"
	}
	if !slices.Contains(f.formats, f.format) {
		return withHint(fmt.Errorf("unknown format %q: use one of %s", f.format, strings.Join(f.formats, ", ")),
			didYouMean(f.format, f.formats))
	}
	format, err := formatOf(f.output, f.format, given, f.formats)
	f.format = format
	return err
}

// run parses the flags and runs a command with the file for standard output.
func (f *formatFlags) run(e *env, cmd *cobra.Command, fn func(*env) error) error {
	if err := f.parse(cmd); err != nil {
		return usageError(cmd, err)
	}
	if f.output == "-" {
		return fn(e)
	}
	var verdict *exitError // without a message it is no failure of writing
	err := writeOutput(e, f.output, func(w io.Writer) error {
		to := *e
		to.stdout = w
		err := fn(&to)
		if errors.As(err, &verdict) && verdict.err == nil {
			return nil
		}
		return err
	})
	if err == nil && verdict != nil {
		return verdict
	}
	return err
}

// suffixes are the names of files by which a format is known.
var suffixes = map[string]string{
	".svg": "svg", ".json": "json", ".folded": "folded", ".collapsed": "folded", ".pb.gz": "pprof", ".pprof": "pprof",
	".txt": "text",
}

// formatOf is the format of an output: what its name says, unless --format was
// given, which must not contradict it. Names that say nothing leave it as it is.
func formatOf(output, format string, given bool, formats []string) (string, error) {
	for suffix, named := range suffixes {
		if !strings.HasSuffix(strings.ToLower(filepath.Base(output)), suffix) || named == format {
			continue
		}
		switch {
		case !slices.Contains(formats, named):
		case given:
			return format, fmt.Errorf("-o %s is the name of a %s file, but --format is %s: leave one of them out",
				output, named, format)
		default:
			return named, nil
		}
	}
	return format, nil
}

// didYouMean suggests the name that is most like a word, "" if none is.
func didYouMean(word string, names []string) string {
	for _, is := range []func(a, b string) bool{misspelt, strings.HasPrefix} {
		for _, name := range names {
			if is(name, word) && word != "" {
				return fmt.Sprintf("did you mean %s?", name)
			}
		}
	}
	return ""
}

// misspelt: a and b begin and end alike, and one letter between differs, is
// missing or is too much, or two letters are swapped.
func misspelt(a, b string) bool {
	short, long := a, b
	if len(short) > len(long) {
		short, long = long, short
	}
	if len(short) < 3 || len(long)-len(short) > 1 {
		return false
	}
	head := 0
	for head < len(short) && short[head] == long[head] {
		head++
	}
	tail := 0
	for tail < len(short)-head && short[len(short)-1-tail] == long[len(long)-1-tail] {
		tail++
	}
	swapped := len(short) == len(long) && head+tail == len(long)-2 && short[head] == long[head+1] &&
		short[head+1] == long[head]
	return head+tail >= len(long)-1 || swapped
}
