// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/buildid"
)

func TestParseConfigStore(t *testing.T) {
	for text, want := range map[string]buildid.Limits{
		"store:\n":                 {},
		"store: {max-size: 10G}\n": {MaxSize: 10 << 30},
		"store:\n  max-age: 30d\n  max-size: 1024\n": {MaxSize: 1024, MaxAge: 30 * 24 * time.Hour},
	} {
		if c, err := Parse("c.yaml", []byte(text)); err != nil || c.Store != want {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	for text, want := range map[string]string{
		"store: 10G\n":                "c.yaml:1:8: store is not a list of NAME: VALUE",
		"store:\n  max-size: much\n":  `c.yaml:2:13: max-size "much" is not a size`,
		"store:\n  max-size: [1]\n":   `c.yaml:2:13: max-size "" is not a size`,
		"store:\n  max-age: 0\n":      "c.yaml:2:12: a limit of 0 would keep nothing",
		"store:\n  max-files: 1000\n": `c.yaml:2:3: unknown field "max-files": store has max-age, max-size`,
	} {
		if _, err := Parse("c.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
