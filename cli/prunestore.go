// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/config"
)

// pruneStore keeps the store at dir within the limits that the configuration
// sets, after something was added. What goes wrong is said, and no more: the
// recording is there.
func pruneStore(stderr io.Writer, configFile, dir string) {
	conf, err := config.Read(configFile)
	if err != nil || conf.Store == (buildid.Limits{}) || dir == "" {
		return // an error was told when recording began
	}
	s, err := buildid.OpenStore(dir)
	if err != nil {
		return // nothing was kept
	}
	defer s.Close()
	p, err := s.Prune(conf.Store)
	if err != nil {
		fmt.Fprintf(stderr, "gantry: limits of the build-id store: %v\n", err)
	}
	if len(p.Removed) > 0 {
		fmt.Fprintf(stderr, "gantry: limits of the build-id store: removed %s (%s), kept %d (%s)\n",
			plural(len(p.Removed), "entry", "entries"), byteSize(p.Freed), p.Kept, byteSize(p.Size))
	}
}
