// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/config"
	"github.com/gantry-tools/gantry/internal/hint"
)

const changeOutputs = "text, json"

func newBuildidRemoveCmd(e *env) *cobra.Command {
	f := new(storeFlags)
	all := false
	cmd := &cobra.Command{
		Use:     "remove [flags] ID|PATH...",
		Aliases: []string{"rm"},
		Short:   "remove files from the store",
		Long: `Remove what the arguments mean, as 'gantry buildid list' takes them: the begin
of an id (4 digits or more) or the path where the file was, where * is any text.`,
		Example: `  gantry buildid remove 3a1f70
  gantry buildid remove '/home/me/build/*'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error {
				if all == (len(args) > 0) {
					return usageError(cmd, errors.New("say what to remove: ids, paths, or --all"))
				}
				return removeEntries(e, f, args)
			})
		},
	}
	f.register(cmd, changeOutputs)
	cmd.Flags().BoolVar(&all, "all", false, "remove everything")
	return cmd
}

// choose opens the store, if there is one, and finds the entries that args mean. The
// caller closes the store.
func (f *storeFlags) choose(e *env, args []string) (*buildid.Store, []buildid.Entry, error) {
	s, err := f.open(e)
	if err != nil || s == nil {
		return nil, nil, err
	}
	list, err := s.List()
	if err == nil {
		list, err = chooseEntries(list, args)
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, list, nil
}

func removeEntries(e *env, f *storeFlags, args []string) error {
	s, list, err := f.choose(e, args)
	if err != nil || s == nil {
		return err
	}
	defer s.Close()
	for i := range list {
		if err := s.Remove(&list[i]); err != nil {
			return errors.Join(writeRemoved(e.stdout, f.format, list[:i]), mayNotWrite(err))
		}
	}
	return writeRemoved(e.stdout, f.format, list)
}

// mayNotWrite is what helps where a store cannot be changed.
func mayNotWrite(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return hint.Wrap(err, "run as the owner of the store")
	}
	return err
}

func writeRemoved(w io.Writer, output string, list []buildid.Entry) error {
	if output == "json" {
		return writeJSON(w, entriesJSON(list))
	}
	for i := range list {
		if _, err := fmt.Fprintf(w, "%s %s\n", list[i].ID, container.Printable(list[i].Path)); err != nil {
			return err
		}
	}
	return nil
}

// pruneFlags are the flags of gantry buildid prune.
type pruneFlags struct {
	storeFlags
	maxSize, maxAge, config string
	dryRun                  bool
}

func newBuildidPruneCmd(e *env) *cobra.Command {
	f := new(pruneFlags)
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "remove what exceeds the limits, the longest unused first",
		Long: `Remove what was not used for longer than --max-age, then the longest unused
until the rest fits --max-size. A use is a look-up by gantry, or that a file was
added. What no command can find any more goes as well: half-written files of
writers that were killed, links that lead nowhere, files that no link leads to.`,
		Example: `  gantry buildid prune --max-size 10G --max-age 30d
  gantry buildid prune --max-age 8w --dry-run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error {
				conf, err := config.Read(f.config)
				if err != nil {
					return err
				}
				limits, err := f.limits(conf.Store)
				if err != nil {
					return usageError(cmd, err)
				}
				return f.run(e, limits)
			})
		},
	}
	f.register(cmd, changeOutputs)
	fl := cmd.Flags()
	fl.StringVar(&f.maxSize, "max-size", "", "`SIZE` that the files may have together, such as 10G")
	fl.StringVar(&f.maxAge, "max-age", "", "`AGE` since the last use, such as 30d")
	fl.StringVar(&f.config, "config", "",
		"configuration `FILE` with limits, which flags replace (default "+config.DefaultFile+")")
	fl.BoolVarP(&f.dryRun, "dry-run", "n", false, "remove nothing, say what would be")
	return cmd
}

// limits are those of the flags, else of the configuration.
func (f *pruneFlags) limits(conf buildid.Limits) (l buildid.Limits, err error) {
	l = conf
	l.DryRun = f.dryRun
	if f.maxSize != "" {
		if l.MaxSize, err = config.ParseSize("--max-size", f.maxSize); err == nil && l.MaxSize == 0 {
			err = errors.New("--max-size 0 would remove everything: that is 'gantry buildid remove --all'")
		}
	}
	if f.maxAge != "" && err == nil {
		if l.MaxAge, err = config.ParseAge("--max-age", f.maxAge); err == nil && l.MaxAge == 0 {
			err = errors.New("--max-age 0 would remove everything: that is 'gantry buildid remove --all'")
		}
	}
	return l, err
}

// pruneJSON is the result of prune in --format json.
type pruneJSON struct {
	DryRun  bool        `json:"dry_run,omitempty"`
	Removed []entryJSON `json:"removed"`
	Freed   int64       `json:"freed"`
	Kept    int         `json:"kept"`
	Size    int64       `json:"size"`
	Temps   int         `json:"half_written"`
}

func (f *pruneFlags) run(e *env, limits buildid.Limits) error {
	s, err := f.open(e)
	if err != nil || s == nil {
		return err
	}
	defer s.Close()
	p, failed := s.Prune(limits)
	if f.format == "json" {
		err = writeJSON(e.stdout, pruneJSON{limits.DryRun, entriesJSON(p.Removed), p.Freed, p.Kept, p.Size, p.Temps})
	} else {
		err = writeRemoved(e.stdout, f.format, p.Removed)
	}
	verb := "removed"
	if limits.DryRun {
		verb = "would remove"
	}
	fmt.Fprintf(e.stderr, "gantry: %s %s (%s), kept %d (%s)", verb,
		plural(len(p.Removed), "entry", "entries"), byteSize(p.Freed), p.Kept, byteSize(p.Size))
	if p.Temps > 0 {
		fmt.Fprintf(e.stderr, "; %s of killed writers", plural(p.Temps, "half-written file", "half-written files"))
	}
	fmt.Fprintln(e.stderr)
	return errors.Join(err, mayNotWrite(failed))
}

func newBuildidVerifyCmd(e *env) *cobra.Command {
	f := new(storeFlags)
	dry := false
	cmd := &cobra.Command{
		Use:   "verify [flags] [ID|PATH]...",
		Short: "read all files again, and drop what is not what it should be",
		Long: `Read every file, or those that the arguments mean as for 'gantry buildid list',
and compare its id with its place. What does not match is dropped, as it is when
a report comes across it. A GNU build-id is a name that the linker gave: that it
matches proves that the file is the right one only if nobody changed it since.

Exit status 1 if a file is bad or cannot be read.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error {
				return verifyStore(e, f, args, !dry)
			})
		},
	}
	f.register(cmd, changeOutputs)
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "drop nothing")
	return cmd
}

// badJSON is a bad file in --format json.
type badJSON struct {
	ID    buildid.ID `json:"id"`
	Path  string     `json:"path"`
	File  string     `json:"file"`
	Error string     `json:"error"`
}

func verifyStore(e *env, f *storeFlags, args []string, drop bool) error {
	s, list, err := f.choose(e, args)
	if err != nil || s == nil {
		return err
	}
	defer s.Close()
	files, found := s.Verify(list, drop)
	bad := []badJSON{}
	for _, b := range found {
		bad = append(bad, badJSON{b.Entry.ID, b.Entry.Path, b.Name, b.Err.Error()})
	}
	if f.format == "json" {
		err = writeJSON(e.stdout, struct {
			Files   int       `json:"files"`
			Bad     []badJSON `json:"bad"`
			Dropped uint64    `json:"dropped"`
		}{files, bad, s.Dropped()})
	} else {
		for _, b := range bad {
			_, werr := fmt.Fprintf(e.stdout, "%s %s: %s\n", b.ID, container.Printable(filepath.Join(b.Path, b.File)),
				container.Printable(b.Error))
			err = errors.Join(err, werr)
		}
	}
	fmt.Fprintf(e.stderr, "gantry: %s read, %d bad, %d dropped\n", plural(files, "file", "files"), len(bad),
		s.Dropped())
	if err == nil && len(bad) > 0 {
		return &exitError{code: 1}
	}
	return err
}
