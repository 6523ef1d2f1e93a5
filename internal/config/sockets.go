// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/gantry-tools/gantry/container"
)

// sockets reads lists of sockets by runtime.
func (p *parser) sockets(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	known := make(map[string]func(key, value *yaml.Node) error)
	for _, runtime := range container.SocketRuntimes() {
		known[runtime] = func(_, value *yaml.Node) error {
			list, err := p.texts(value)
			if err != nil {
				return err
			}
			for _, at := range list {
				if !filepath.IsAbs(at.Value) {
					return p.wrong(at, "%q is not the absolute path of a socket", at.Value)
				}
				p.config.Sockets = append(p.config.Sockets, container.Socket{Runtime: runtime, Path: at.Value})
			}
			return nil
		}
	}
	return p.fields(n, "sockets", known)
}
