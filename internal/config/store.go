// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"

	"go.yaml.in/yaml/v3"
)

// errKeepNothing is a limit of a store that leaves nothing.
var errKeepNothing = errors.New("a limit of 0 would keep nothing: leave it out for no limit")

// store reads the limits of the build-id store.
func (p *parser) store(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	l := &p.config.Store
	return p.fields(n, "store", map[string]func(key, value *yaml.Node) error{
		"max-size": func(_, v *yaml.Node) (err error) {
			if l.MaxSize, err = ParseSize("max-size", v.Value); err == nil && l.MaxSize == 0 {
				err = errKeepNothing
			}
			return p.located(v, err)
		},
		"max-age": func(_, v *yaml.Node) (err error) {
			if l.MaxAge, err = ParseAge("max-age", v.Value); err == nil && l.MaxAge == 0 {
				err = errKeepNothing
			}
			return p.located(v, err)
		},
	})
}

// located gives an error the place of a node.
func (p *parser) located(at *yaml.Node, err error) error {
	if err != nil {
		return p.wrong(at, "%w", err)
	}
	return nil
}
