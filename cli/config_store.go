// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/gantry-tools/gantry/buildid"
)

// errKeepNothing is a limit of a store that leaves nothing.
var errKeepNothing = errors.New("a limit of 0 would keep nothing: leave it out for no limit")

// store reads the limits of the build-id store.
func (p *configParser) store(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	l := &p.config.store
	return p.fields(n, "store", map[string]func(key, value *yaml.Node) error{
		"max-size": func(_, v *yaml.Node) (err error) {
			if l.MaxSize, err = parseSize("max-size", v.Value); err == nil && l.MaxSize == 0 {
				err = errKeepNothing
			}
			return p.located(v, err)
		},
		"max-age": func(_, v *yaml.Node) (err error) {
			if l.MaxAge, err = parseAge("max-age", v.Value); err == nil && l.MaxAge == 0 {
				err = errKeepNothing
			}
			return p.located(v, err)
		},
	})
}

// located gives an error the place of a node.
func (p *configParser) located(at *yaml.Node, err error) error {
	if err != nil {
		return p.wrong(at, "%w", err)
	}
	return nil
}

// pruneStore keeps the store at dir within the limits that the configuration
// sets, after something was added. What goes wrong is said, and no more: the
// recording is there.
func pruneStore(stderr io.Writer, configFile, dir string) {
	conf, err := readConfig(configFile)
	if err != nil || conf.store == (buildid.Limits{}) || dir == "" {
		return // an error was told when recording began
	}
	s, err := buildid.OpenStore(dir)
	if err != nil {
		return // nothing was kept
	}
	defer s.Close()
	p, err := s.Prune(conf.store)
	if err != nil {
		fmt.Fprintf(stderr, "gantry: limits of the build-id store: %v\n", err)
	}
	if len(p.Removed) > 0 {
		fmt.Fprintf(stderr, "gantry: limits of the build-id store: removed %s (%s), kept %d (%s)\n",
			plural(len(p.Removed), "entry", "entries"), byteSize(p.Freed), p.Kept, byteSize(p.Size))
	}
}
