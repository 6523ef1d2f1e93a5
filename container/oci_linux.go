// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// OCIState is a state directory of runc or crun (their --root): one
// directory for each container.
type OCIState struct {
	Dir string
}

// Name implements Source.
func (s OCIState) Name() string { return "OCI state (" + s.Dir + ")" }

var _ Source = OCIState{}

// Containers implements Source.
func (s OCIState) Containers(ctx context.Context) ([]Info, error) {
	ids, err := subdirs(s.Dir)
	if err != nil {
		return nil, err
	}
	var (
		list []Info
		errs []error
	)
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return list, err
		}
		in, err := s.container(id)
		if err != nil {
			if !procfs.Gone(err) {
				errs = append(errs, fmt.Errorf("container %s: %w", id, err))
			}
			continue
		}
		list = append(list, in)
	}
	return list, joinFew(errs)
}

// joinFew joins errors, of which a hostile directory may have any number.
func joinFew(errs []error) error {
	const few = 8
	if more := len(errs) - few; more > 0 {
		errs = append(errs[:few:few], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// container reads the state that runc (state.json) or crun (status) keeps.
func (s OCIState) container(id string) (Info, error) {
	dir := filepath.Join(s.Dir, id)
	b, uid, err := readState(filepath.Join(dir, "state.json"))
	parse := parseRunc
	if procfs.Gone(err) {
		b, uid, err = readState(filepath.Join(dir, "status"))
		parse = parseCrun
	}
	if err != nil {
		return Info{}, err
	}
	in, err := parse(b)
	if err != nil {
		return Info{}, err
	}
	if in.Runtime == RuntimeCrun {
		// Annotations are extra: the container is known without them.
		if b, by, err := readState(filepath.Join(dir, "config.json")); err == nil && by == uid {
			in.annotate(b)
		}
	}
	// The first process opens it, and waits for who starts the container.
	_, err = os.Lstat(filepath.Join(dir, "exec.fifo"))
	in.Unstarted = err == nil
	in.ID, in.Owner = id, uid
	if in.Name == "" {
		in.Name = chosenName(id)
	}
	return in, nil
}

// runcState is state.json of runc (libcontainer.State), as far as needed.
type runcState struct {
	PID     int       `json:"init_process_pid"`
	Start   uint64    `json:"init_process_start"` // ticks
	Created time.Time `json:"created"`
	Config  struct {
		Labels []string `json:"labels"` // annotations as key=value
	} `json:"config"`
	// CgroupPaths are directories by v1 controller, "" for the unified tree.
	CgroupPaths map[string]string `json:"cgroup_paths"`
}

func parseRunc(b []byte) (Info, error) {
	var s runcState
	if err := json.Unmarshal(b, &s); err != nil {
		return Info{}, err
	}
	c := Container{Runtime: RuntimeRunc, PID: s.PID, StartTime: s.Start * uint64(procfs.Ticks),
		Created: s.Created.UTC()}
	m := make(map[string]string, len(s.Config.Labels))
	for _, l := range s.Config.Labels {
		if k, v, _ := strings.Cut(l, "="); k != "bundle" { // runc's own: its directory
			m[k] = v
		}
	}
	c.kube(m)
	c.label(m)
	dir := s.CgroupPaths[""]
	for _, v1 := range []string{"perf_event", "memory", "pids", "cpu"} {
		dir = cmp.Or(dir, s.CgroupPaths[v1])
	}
	return Info{Container: c, cgroup: dir}, nil
}

// crunStatus is the status file of crun, as far as needed.
type crunStatus struct {
	PID     int       `json:"pid"`
	Start   uint64    `json:"process-start-time"` // ticks
	Created time.Time `json:"created"`
	Cgroup  string    `json:"cgroup-path"`
}

func parseCrun(b []byte) (Info, error) {
	var s crunStatus
	if err := json.Unmarshal(b, &s); err != nil {
		return Info{}, err
	}
	c := Container{Runtime: RuntimeCrun, PID: s.PID, StartTime: s.Start * uint64(procfs.Ticks),
		Created: s.Created.UTC()}
	return Info{Container: c, cgroup: s.Cgroup}, nil
}

// ociConfig is config.json of an OCI bundle, as far as needed.
type ociConfig struct {
	Annotations map[string]string `json:"annotations"`
}

// annotate fills what the annotations of an OCI configuration tell; one that
// cannot be read tells nothing.
func (c *Container) annotate(config []byte) {
	var oc ociConfig
	if json.Unmarshal(config, &oc) == nil {
		c.kube(oc.Annotations)
		c.label(oc.Annotations)
	}
}

// ContainerdTasks is the directory in which containerd's shims keep the OCI
// bundles of running tasks: NAMESPACE/ID/{config.json,init.pid}.
type ContainerdTasks struct {
	Dir string
}

// Name implements Source.
func (s ContainerdTasks) Name() string { return "containerd tasks (" + s.Dir + ")" }

var _ Source = ContainerdTasks{}

// Containers implements Source.
func (s ContainerdTasks) Containers(ctx context.Context) ([]Info, error) {
	spaces, err := subdirs(s.Dir)
	if err != nil {
		return nil, err
	}
	var (
		list []Info
		errs []error
	)
	for _, ns := range spaces {
		ids, err := subdirs(filepath.Join(s.Dir, ns))
		if err != nil {
			errs = append(errs, err)
		}
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return list, err
			}
			in, err := s.task(ns, id)
			if err == nil {
				list = append(list, in)
			} else if !procfs.Gone(err) {
				errs = append(errs, fmt.Errorf("task %s/%s: %w", ns, id, err))
			}
		}
	}
	return list, joinFew(errs)
}

func (s ContainerdTasks) task(ns, id string) (Info, error) {
	dir := filepath.Join(s.Dir, ns, id)
	b, uid, err := readState(filepath.Join(dir, "init.pid"))
	if err != nil {
		return Info{}, err
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 31)
	if err != nil {
		return Info{}, fmt.Errorf("init.pid: %w", err)
	}
	c := Container{ID: id, Name: chosenName(id), Runtime: RuntimeContainerd, PID: int(pid)}
	if ns == "moby" {
		c.Runtime = RuntimeDocker
	}
	if b, by, err := readState(filepath.Join(dir, "config.json")); err == nil && by == uid {
		c.annotate(b)
	}
	return Info{Container: c, Owner: uid}, nil
}
