// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/gantry-tools/gantry/agent/tracing"
)

// Options of Wrap.
type Options struct {
	// Socket is where the agent takes listeners.
	Socket string
	// Tracing is a directory with the tracepoints that some container may open; ""
	// is none.
	Tracing string
}

// Wrap changes the bundle that the arguments of a container runtime make a container
// of: its perf_event_open is answered by the agent. Other arguments change nothing, and
// a container that may open events by itself, or has an agent of its own, stays as it
// is.
func Wrap(args []string, o *Options) error {
	dir, ok := bundle(args)
	if !ok {
		return nil
	}
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	changed, err := edit(text, o)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if changed == nil {
		return nil
	}
	fi, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	temp := file + ".gantry"
	if err := os.WriteFile(temp, changed, fi.Mode().Perm()); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := os.Rename(temp, file); err != nil {
		return errors.Join(fmt.Errorf("bundle: %w", err), os.Remove(temp))
	}
	return nil
}

// switches are flags of runc and crun that take no value.
var switches = []string{"--debug", "--systemd-cgroup", "--help", "-h", "--version", "-v", "-V"}

// bundle is the directory of the container that a runtime is to make.
func bundle(args []string) (dir string, ok bool) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "create", args[i] == "run":
			return bundleFlag(args[i+1:]), true
		case !strings.HasPrefix(args[i], "-"):
			return "", false
		case !strings.Contains(args[i], "=") && !slices.Contains(switches, args[i]):
			i++ // its value
		}
	}
	return "", false
}

func bundleFlag(args []string) string {
	for i, a := range args {
		name, value, has := strings.Cut(a, "=")
		if name != "--bundle" && name != "-bundle" && name != "-b" {
			continue
		}
		if has {
			return value
		}
		if i+1 < len(args) {
			return args[i+1]
		}
	}
	return "."
}

// A config is a config.json: fields that are not known here stay as they are.
type config map[string]json.RawMessage

// part reads a field into v; it reports whether there is one.
func (c config) part(name string, v any) (bool, error) {
	text := c[name]
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return false, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

func (c config) set(name string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		c[name] = text
	}
	return err
}

// edit changes a config.json; nil is no change.
func edit(text []byte, o *Options) ([]byte, error) {
	var whole, linux, process config
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	for name, part := range map[string]*config{"linux": &linux, "process": &process} {
		if has, err := whole.part(name, part); err != nil || !has {
			return nil, err
		}
	}
	var caps specs.LinuxCapabilities
	if _, err := process.part("capabilities", &caps); err != nil {
		return nil, err
	}
	for _, c := range caps.Bounding {
		if c == "CAP_SYS_ADMIN" || c == "CAP_PERFMON" {
			return nil, nil // it may open events by itself
		}
	}
	profile := specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	if _, err := linux.part("seccomp", &profile); err != nil {
		return nil, err
	}
	if profile.ListenerPath != "" {
		return nil, nil
	}
	Notify(&profile, o.Socket)
	if err := linux.set("seccomp", &profile); err != nil {
		return nil, err
	}
	if err := addTracing(whole, process, o.Tracing); err != nil {
		return nil, err
	}
	if err := errors.Join(whole.set("linux", linux), whole.set("process", process)); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}

// addTracing mounts the directory of tracepoints, if there is one and the container
// has not mounted another there.
func addTracing(whole, process config, dir string) error {
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "events")); err != nil {
		return nil // no rule allows any
	}
	var mounts []json.RawMessage
	if _, err := whole.part("mounts", &mounts); err != nil {
		return err
	}
	for _, text := range mounts {
		var m specs.Mount
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
		if m.Destination == tracing.Dir {
			return nil
		}
	}
	text, err := json.Marshal(specs.Mount{Destination: tracing.Dir, Type: "bind", Source: dir,
		Options: []string{"rbind", "ro", "nosuid", "nodev", "noexec"}})
	if err != nil {
		return err
	}
	var env []string
	if _, err := process.part("env", &env); err != nil {
		return err
	}
	return errors.Join(whole.set("mounts", append(mounts, text)),
		process.set("env", append(env, tracing.Env+"="+tracing.Dir)))
}
