// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/container"
)

func TestParseConfigSockets(t *testing.T) {
	c, err := Parse("c.yaml", []byte("sockets:\n  docker: [/data/docker.sock, /b.sock]\n  podman: [/p.sock]\n"))
	want := []container.Socket{{Runtime: "docker", Path: "/data/docker.sock"}, {Runtime: "docker", Path: "/b.sock"}, {Runtime: "podman", Path: "/p.sock"}}
	if err != nil || !slices.Equal(c.Sockets, want) {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"sockets:\n  dokcer: [/x]\n":       `c.yaml:2:3: unknown field "dokcer": sockets has `,
		"sockets:\n  docker: /x\n":         "c.yaml:2:11: not a list: write [a, b]",
		"sockets:\n  docker: [run/x]\n":    `c.yaml:2:12: "run/x" is not the absolute path of a socket`,
		"sockets:\n  docker: [[/run/x]]\n": "c.yaml:2:12: not a text",
	} {
		if _, err := Parse("c.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
