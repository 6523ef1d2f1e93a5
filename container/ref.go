// SPDX-License-Identifier: Apache-2.0

package container

import "strings"

// Kind tells containers from the other things that have a cgroup and a name.
type Kind string

// Kinds of what a Ref and a Container describe.
const (
	KindContainer Kind = ""     // made by a container runtime
	KindUnit      Kind = "unit" // a systemd service or scope of the host
)

// Runtimes as the text of a cgroup path or a Source names them. Others occur.
const (
	RuntimeDocker     = "docker"
	RuntimeContainerd = "containerd"
	RuntimeCRIO       = "crio"
	RuntimePodman     = "podman"
	RuntimeLXC        = "lxc"
	RuntimeNspawn     = "nspawn"
	RuntimeLibvirt    = "libvirt"
	RuntimeECS        = "ecs"
	RuntimeRunc       = "runc"
	RuntimeCrun       = "crun"
	RuntimeSystemd    = "systemd"
)

// Ref is what the text of a cgroup path tells of a container or unit.
type Ref struct {
	Kind    Kind
	Runtime string // "" if the text does not tell
	ID      string // a substring of the path, never empty
	PodUID  string // with dashes, whichever spelling the path has
	QoS     string // guaranteed, burstable, besteffort
	// Path is the container's own cgroup: the path's prefix that ends with
	// the component that names it. A container may have cgroups below it.
	Path string
}

const (
	idLen  = 64 // hex digits of a container id of Docker and its heirs
	ecsLen = 32 // hex digits of a Fargate id in front of "-digits"
)

// FromCgroupPath finds the container that a cgroup path names: the innermost
// one. If there is none, it finds the innermost systemd unit. A path that
// names neither, such as runc's own choice "/gantry-demo/a", is not ok; the
// runtime's state knows those.
func FromCgroupPath(path string) (Ref, bool) {
	for end := len(path); end > 0; {
		start := strings.LastIndexByte(path[:end], '/') + 1
		if runtime, id := named(path[start:end], path[:max(start-1, 0)]); id != "" {
			ref := Ref{Runtime: runtime, ID: id, Path: path[:end]}
			ref.PodUID, ref.QoS = pod(path[:end])
			return ref, true
		}
		end = start - 1
	}
	return unit(path)
}

// unit finds the innermost service or scope.
func unit(path string) (Ref, bool) {
	for end := len(path); end > 0; {
		start := strings.LastIndexByte(path[:end], '/') + 1
		c := path[start:end]
		if len(c) > len(".scope") && strings.HasSuffix(c, ".scope") ||
			len(c) > len(".service") && strings.HasSuffix(c, ".service") {
			return Ref{Kind: KindUnit, Runtime: RuntimeSystemd, ID: c, Path: path[:end]}, true
		}
		end = start - 1
	}
	return Ref{}, false
}

// named takes the container's id out of one component; parents is the path
// in front of it. The id is "" if the component names none.
func named(c, parents string) (runtime, id string) {
	parent := parents[strings.LastIndexByte(parents, '/')+1:]
	if rest, ok := strings.CutPrefix(c, "lxc.payload."); ok {
		return RuntimeLXC, rest
	}
	if (parent == "lxc" || parent == "lxc.payload") && !strings.HasPrefix(c, "lxc.") {
		return RuntimeLXC, c
	}
	if runtime, id := machine(c); id != "" {
		return runtime, id
	}
	c = strings.TrimSuffix(c, ".scope")
	if i := strings.LastIndexByte(c, ':'); i >= 0 {
		// "system.slice:docker:ID": a systemd name given to the cgroupfs driver.
		prefix := c[:i]
		return hexID(prefix[strings.LastIndexByte(prefix, ':')+1:], c[i+1:])
	}
	if isHex(c, idLen) {
		return bareRuntime(parent, parents), c
	}
	if len(c) > ecsLen+1 && c[ecsLen] == '-' && isHex(c[:ecsLen], ecsLen) && isDigits(c[ecsLen+1:]) {
		return RuntimeECS, c
	}
	if i := len(c) - idLen - 1; i > 0 && c[i] == '-' {
		return hexID(c[:i], c[i+1:])
	}
	return "", ""
}

// hexID is the container of "PREFIX-ID", such as "cri-containerd-<64 hex>".
// The monitors of containers (conmon) are not in the container.
func hexID(prefix, id string) (runtime, _ string) {
	if !isHex(id, idLen) || prefix == "conmon" || strings.HasSuffix(prefix, "-conmon") {
		return "", ""
	}
	switch prefix {
	case "cri-containerd", "nerdctl":
		return RuntimeContainerd, id
	case "libpod", "libpod-payload":
		return RuntimePodman, id
	}
	return prefix, id
}

// bareRuntime guesses who made a cgroup that is named by an id alone.
func bareRuntime(parent, parents string) string {
	switch {
	case parent == "docker":
		return RuntimeDocker
	case parent == "libpod_parent":
		return RuntimePodman
	case strings.HasPrefix(parents, "/ecs/") || strings.Contains(parents, "/ecs/"):
		return RuntimeECS
	}
	return ""
}

// machine is a machine registered with systemd: nspawn, libvirt.
func machine(c string) (runtime, id string) {
	if rest, ok := strings.CutPrefix(c, "systemd-nspawn@"); ok {
		if name, ok := strings.CutSuffix(rest, ".service"); ok {
			return RuntimeNspawn, name
		}
		return "", ""
	}
	rest, ok := strings.CutPrefix(c, "machine-")
	if !ok {
		return "", ""
	}
	name, ok := strings.CutSuffix(rest, ".scope")
	if !ok {
		return "", ""
	}
	if strings.HasPrefix(name, `qemu\x2d`) || strings.HasPrefix(name, `lxc\x2d`) {
		return RuntimeLibvirt, name
	}
	return RuntimeNspawn, name
}

// pod finds the pod's uid and quality of service in a path below kubepods.
func pod(path string) (uid, qos string) {
	_, below, ok := strings.Cut(path, "kubepods")
	if !ok {
		return "", ""
	}
	qos = "guaranteed"
	for _, q := range []string{"burstable", "besteffort"} {
		if strings.Contains(path, "kubepods-"+q) || strings.Contains(path, "kubepods/"+q+"/") {
			qos = q
		}
	}
	for {
		i := strings.Index(below, "pod")
		if i < 0 {
			return uid, qos
		}
		before := byte('/')
		if i > 0 {
			before = below[i-1]
		}
		below = below[i+len("pod"):]
		if n := uidLen(below); n > 0 && (before == '/' || before == '-') {
			uid = strings.ReplaceAll(below[:n], "_", "-")
		}
	}
}

// uidLen is the length of the pod uid that s starts with: a UUID, or the 32
// digits of a static pod. It is 0 if there is none.
func uidLen(s string) int {
	n := 0
	for n < len(s) && (hexDigit(s[n]) || s[n] == '-' || s[n] == '_') {
		n++
	}
	switch {
	case n == 32 && isHex(s[:n], n):
	case n == 36 && s[8] == s[13] && s[13] == s[18] && s[18] == s[23] && !hexDigit(s[8]):
	default:
		return 0
	}
	return n
}

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if !hexDigit(s[i]) {
			return false
		}
	}
	return true
}

func hexDigit(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Socket is where a runtime answers.
type Socket struct {
	Runtime string // one of SocketRuntimes
	Path    string
}

// SocketRuntimes are the runtimes that are asked by a socket.
func SocketRuntimes() []string {
	return []string{RuntimeDocker, RuntimePodman, RuntimeContainerd, RuntimeCRIO}
}
