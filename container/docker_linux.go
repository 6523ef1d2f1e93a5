// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"
)

// Docker is dockerd's socket.
type Docker struct {
	Socket string
}

// Podman is the socket of "podman system service", of root or of a user.
type Podman struct {
	Socket string
}

// Name implements Source.
func (s Docker) Name() string { return "docker (" + s.Socket + ")" }

// Name implements Source.
func (s Podman) Name() string { return "podman (" + s.Socket + ")" }

var (
	_ Source = Docker{}
	_ Source = Podman{}
)

// dockerContainer is an element of GET /containers/json.
type dockerContainer struct {
	ID      string            `json:"Id"`
	Names   []string          // "/web"
	Image   string            // as the user gave it
	Created int64             // seconds
	Labels  map[string]string // with those of the kubelet under cri-dockerd
}

// Containers implements Source.
func (s Docker) Containers(ctx context.Context) ([]Info, error) {
	answer, uid, err := getList[dockerContainer](ctx, s.Socket, "/containers/json")
	if err != nil {
		return nil, missingOK(err)
	}
	list := make([]Info, 0, len(answer))
	for _, d := range answer {
		c := Container{ID: d.ID, Runtime: RuntimeDocker, Image: d.Image, Labels: d.Labels}
		if d.Created > 0 {
			c.Created = time.Unix(d.Created, 0).UTC()
		}
		if len(d.Names) > 0 {
			c.Name = strings.TrimPrefix(d.Names[0], "/")
		}
		c.kube(d.Labels)
		list = append(list, Info{Container: c, Owner: uid})
	}
	return list, nil
}

// podmanContainer is an element of GET /libpod/containers/json.
type podmanContainer struct {
	ID      string `json:"Id"`
	Names   []string
	Image   string
	PID     int `json:"Pid"`
	PodName string
	Created time.Time
	IsInfra bool
	Labels  map[string]string
}

// Containers implements Source.
func (s Podman) Containers(ctx context.Context) ([]Info, error) {
	answer, uid, err := getList[podmanContainer](ctx, s.Socket, "/v4.0.0/libpod/containers/json")
	if err != nil {
		return nil, missingOK(err)
	}
	list := make([]Info, 0, len(answer))
	for _, p := range answer {
		c := Container{ID: p.ID, Runtime: RuntimePodman, Image: p.Image, PID: p.PID, Pod: p.PodName, Labels: p.Labels,
			Created: p.Created.UTC()}
		if len(p.Names) > 0 {
			c.Name = p.Names[0]
		}
		if p.IsInfra {
			c.Name = SandboxName
		}
		list = append(list, Info{Container: c, Owner: uid})
	}
	return list, nil
}

// missingOK drops the error of a socket that does not exist.
func missingOK(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

var errNotSocket = errors.New("not a socket")

// getList asks an HTTP server on a unix socket for a list, and returns the
// socket's owner with it. Neither the time (ctx) nor the size of the answer
// is the server's choice.
func getList[T any](ctx context.Context, socket, path string) ([]T, uint32, error) {
	uid, mode, err := owner(socket)
	if err != nil {
		return nil, 0, err
	}
	if mode&fs.ModeSocket == 0 {
		return nil, 0, errNotSocket
	}
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	defer tr.CloseIdleConnections()
	client := http.Client{Transport: tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("GET %s: status %d", path, resp.StatusCode)
	}
	list, err := decodeList[T](json.NewDecoder(io.LimitReader(resp.Body, maxSourceBody)), maxSourceList)
	if err != nil {
		return nil, 0, fmt.Errorf("GET %s: %w", path, err)
	}
	return list, uid, nil
}
