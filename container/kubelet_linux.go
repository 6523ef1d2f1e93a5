// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Kubelet is the directory of links to containers' logs that the kubelet
// keeps, /var/log/containers. Their names say which container is whose, also
// to those who may not ask the runtime.
type Kubelet struct {
	Dir string
}

// Name implements Source.
func (s Kubelet) Name() string { return "kubelet (" + s.Dir + ")" }

var _ Source = Kubelet{}

// Containers implements Source. The logs outlive their containers.
func (s Kubelet) Containers(context.Context) ([]Info, error) {
	d, err := os.Open(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	uid, _, err := owner(s.Dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(maxSourceList)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var list []Info
	for _, name := range names {
		if c, ok := logName(name); ok {
			list = append(list, Info{Container: c, Owner: uid, Hint: true})
		}
	}
	return list, nil
}

// logName parses "POD_NAMESPACE_CONTAINER-ID.log". None of the names may
// hold an underscore.
func logName(name string) (Container, bool) {
	name, ok := strings.CutSuffix(name, ".log")
	f := strings.Split(name, "_")
	if !ok || len(f) != 3 {
		return Container{}, false
	}
	at := len(f[2]) - idLen
	if at < 2 || f[2][at-1] != '-' || !isHex(f[2][at:], idLen) || f[0] == "" || f[1] == "" {
		return Container{}, false
	}
	return Container{ID: f[2][at:], Name: f[2][:at-1], Pod: f[0], PodNamespace: f[1]}, true
}
