// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
)

// storeFlags are the flags that all commands of the store have.
type storeFlags struct {
	dir string
	formatFlags
}

func (f *storeFlags) register(cmd *cobra.Command, outputs string) {
	fl := cmd.Flags()
	fl.StringVar(&f.dir, "buildid-dir", "", "the build-id store (default ~/.debug, which is perf's)")
	if outputs != "" {
		f.formatFlags.register(cmd, strings.Split(outputs, ", ")...)
	}
}

// place is the directory of the store.
func (f *storeFlags) place() (string, error) {
	dir := cmp.Or(f.dir, defaultStore())
	if dir == "" {
		return "", hint.Wrap(errors.New("there is no home directory that could have a build-id store"),
			"give its directory with --buildid-dir DIR")
	}
	return dir, nil
}

// open opens the store; nil if it is the usual one and there is none.
func (f *storeFlags) open(e *env) (*buildid.Store, error) {
	dir, err := f.place()
	if err != nil {
		return nil, err
	}
	s, err := buildid.OpenStore(dir)
	if f.dir == "" && errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(e.stderr, "gantry: no build-id store at %s: nothing was kept so far\n", dir)
		return nil, nil
	}
	if err != nil {
		return nil, named("--buildid-dir", err, "give the directory of a store, as ~/.debug")
	}
	return s, nil
}

// create opens the store for writing and makes it if need be.
func (f *storeFlags) create() (*buildid.Store, error) {
	dir, err := f.place()
	if err != nil {
		return nil, err
	}
	s, err := buildid.CreateStore(dir)
	if err != nil {
		return nil, hint.Wrap(err, "choose a place you may write to with --buildid-dir DIR")
	}
	return s, nil
}

func newBuildidCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "buildid",
		Short: "look after the store of binaries by build-id",
		Long: `Look after the store of binaries that recordings are resolved with. It has
perf's layout: 'perf report --buildid-dir DIR' and 'perf buildid-cache' read it
too.

Files are addressed by their GNU build-id; those that have none by Go's
build-id or a hash of their content, which begin with 676e7467 and 676e7463.`,
		Example: `  gantry buildid list                        what is kept
  gantry buildid add --container web /app    keep a container's binary
  gantry buildid prune --max-size 10G        make room, the longest unused first
  gantry buildid serve                       debuginfod for gdb, perf and others`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBuildidListCmd(e), newBuildidAddCmd(e), newBuildidRemoveCmd(e), newBuildidPruneCmd(e),
		newBuildidVerifyCmd(e), newBuildidServeCmd(e))
	return cmd
}

const listOutputs = "table, wide, json, name"

func newBuildidListCmd(e *env) *cobra.Command {
	f := new(storeFlags)
	cmd := &cobra.Command{
		Use:   "list [flags] [ID|PATH]...",
		Short: "list what the store has",
		Long: `List what the store has: the id, where it comes from (gnu, go, content; code and
derived are what gantry kept of generated code, and worked out of files), the
size, the time since the last use, and where the file was. An argument is the
begin of an id or a path, where * is any text.`,
		Example: `  gantry buildid list
  gantry buildid list '*/libc.so*'
  gantry buildid list --format json 3a1f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error {
				return listStore(e, f, args)
			})
		},
	}
	f.register(cmd, listOutputs)
	return cmd
}

func listStore(e *env, f *storeFlags, args []string) error {
	var list []buildid.Entry
	s, err := f.open(e)
	if err != nil {
		return err
	}
	if s != nil {
		defer s.Close()
		all, err := s.List()
		if err != nil {
			return err
		}
		if list, err = chooseEntries(all, args); err != nil {
			return err
		}
	}
	return writeEntries(e.stdout, f.format, list)
}

// minIDPrefix is the shortest begin of an id that is taken for one.
const minIDPrefix = 4

// chooseEntries keeps what the selectors mean, all without any. One that means
// nothing is an error.
func chooseEntries(all []buildid.Entry, selectors []string) ([]buildid.Entry, error) {
	if len(selectors) == 0 {
		return all, nil
	}
	keep := make([]bool, len(all))
	for _, sel := range selectors {
		found := false
		for i := range all {
			id := all[i].ID.String()
			if container.MatchStars(sel, all[i].Path) || len(sel) >= minIDPrefix &&
				strings.HasPrefix(id, strings.ToLower(sel)) {
				keep[i], found = true, true
			}
		}
		if !found {
			return nil, hint.Wrap(fmt.Errorf("%q: nothing in the store has this id or path", sel),
				"'gantry buildid list' shows what is there; an id needs 4 digits or more")
		}
	}
	var list []buildid.Entry
	for i := range all {
		if keep[i] {
			list = append(list, all[i])
		}
	}
	return list, nil
}

// entryJSON is an entry in --format json.
type entryJSON struct {
	ID     buildid.ID `json:"id"`
	Kind   string     `json:"kind"`
	Path   string     `json:"path,omitempty"`
	Files  []string   `json:"files"`
	Size   int64      `json:"size"`
	Used   time.Time  `json:"used,omitzero"`
	Orphan bool       `json:"orphan,omitempty"`
}

func entriesJSON(list []buildid.Entry) []entryJSON {
	out := []entryJSON{}
	for i := range list {
		x := &list[i]
		out = append(out, entryJSON{x.ID, x.Kind(), x.Path, append([]string{}, x.Files...), x.Size, x.Used.UTC(),
			x.Orphan})
	}
	return out
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func writeEntries(w io.Writer, output string, list []buildid.Entry) error {
	switch {
	case output == "json":
		return writeJSON(w, entriesJSON(list))
	case output == "name":
		for i := range list {
			if _, err := fmt.Fprintln(w, list[i].ID); err != nil {
				return err
			}
		}
		return nil
	case len(list) == 0:
		return nil
	}
	width := 0
	if output == "table" {
		width = tableWidth(w)
	}
	return writeColumns(w, entryColumns(list, time.Now()), width)
}

func entryColumns(list []buildid.Entry, now time.Time) []column {
	cols := []column{
		{title: "BUILD-ID", cut: cutEnd, keep: 12},
		{title: "KIND"},
		{title: "SIZE", right: true},
		{title: "USED", right: true},
		{title: "FILES"},
		{title: "PATH", cut: cutBegin},
	}
	for i := range list {
		x := &list[i]
		used := ""
		if !x.Used.IsZero() {
			used = ageText(now.Sub(x.Used))
		}
		files := strings.Join(x.Files, ",")
		if x.Orphan {
			files += " (no link)"
		}
		for j, s := range []string{x.ID.String(), x.Kind(), byteSize(x.Size), used, files, x.Path} {
			cols[j].cells = append(cols[j].cells, container.Printable(s))
		}
	}
	return cols
}
