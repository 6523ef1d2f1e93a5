// SPDX-License-Identifier: Apache-2.0

//go:build linux

package container

import "testing"

// DOCKER_HOST names another socket; what is no socket, or the usual one, is nothing new.
func TestDockerHost(t *testing.T) {
	for host, want := range map[string]string{
		"unix:///data/docker.sock": "/data/docker.sock", "unix:///run/docker.sock": "",
		"unix:///var/run/docker.sock": "",
		"unix://docker.sock":          "", "tcp://10.0.0.1:2375": "", "": "",
	} {
		t.Setenv("DOCKER_HOST", host)
		source, ok := dockerHost()
		if ok != (want != "") || ok && source != (Docker{want}) {
			t.Errorf("%q: %v, %v, want %q", host, source, ok, want)
		}
	}
}
