// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/container"
)

// useAgent has the agent of the host open what is not permitted here, if this is a
// container that has its socket, and asks it what the container is called. It returns
// what releases it.
func useAgent(o *capture.Options) (release func() error, note string) {
	c, err := client.Dial()
	if err != nil {
		return func() error { return nil }, ""
	}
	about, err := c.About()
	if err != nil {
		// Such as a process of the host, which needs no agent.
		var refused *client.Refusal
		if !errors.As(err, &refused) {
			note = "not used: " + err.Error()
		}
		return c.Close, note
	}
	o.Agent = c
	if o.Resolver != nil && about.Container.Namespaces[container.PIDNS] != 0 {
		o.Resolver.Inside(about.Host, &about.Container)
	}
	return c.Close, ""
}
