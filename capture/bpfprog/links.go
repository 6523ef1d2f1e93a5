// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Kinds of links (enum bpf_link_type of linux/bpf.h), by the names of bpftool.
var linkKinds = [...]string{1: "raw_tracepoint", 2: "tracing", 3: "cgroup", 4: "iter", 5: "netns", 6: "xdp",
	7: "perf_event",
	8: "kprobe_multi", 9: "struct_ops", 10: "netfilter", 11: "tcx", 12: "uprobe_multi", 13: "netkit", 14: "sockmap"}

// Kinds that tell where they are.
const (
	linkRawTracepoint, linkCgroup, linkIter, linkNetns    = 1, 3, 4, 5
	linkXDP, linkPerfEvent, linkTCX, linkUprobe, linkNetk = 6, 7, 11, 12, 13
)

// Places in struct bpf_link_info; what depends on the kind is at linkBodyAt.
const (
	linkTypeAt, linkProgAt, linkBodyAt = 0, 8, 16
	linkInfoSize                       = 72
	// linkName is the longest name or path that is read.
	linkName = 512
	// maxLinks bounds the links of one program that are kept.
	maxLinks = 64
)

// Links tells where programs are attached by links, by the id of the program.
// cgroups is for their paths; it may be nil. fs.ErrPermission without
// CAP_SYS_ADMIN; nothing before Linux 5.8.
func Links(cgroups *procfs.CgroupTree) (map[uint32][]perfdata.BPFAttachment, error) {
	at := make(map[uint32][]perfdata.BPFAttachment)
	id := uint32(0)
	for {
		next, err := sys.BPFNextID(sys.BPFLink, id)
		if errors.Is(err, fs.ErrNotExist) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		id = next
		prog, a, err := link(id, cgroups)
		if err == nil && len(at[prog]) < maxLinks {
			at[prog] = append(at[prog], a)
		}
	}
}

// link describes one link.
func link(id uint32, cgroups *procfs.CgroupTree) (prog uint32, a perfdata.BPFAttachment, err error) {
	fd, err := sys.BPFOpen(sys.BPFLink, id)
	if err != nil {
		return 0, a, err
	}
	defer fd.Close()
	info := make([]byte, linkInfoSize)
	if _, err := sys.BPFInfo(fd, info); err != nil {
		return 0, a, err
	}
	kind := nativeOrder.Uint32(info[linkTypeAt:])
	a.Kind, a.Link = strconv.Itoa(int(kind)), id
	if int(kind) < len(linkKinds) && linkKinds[kind] != "" {
		a.Kind = linkKinds[kind]
	}
	body := info[linkBodyAt:]
	switch kind {
	case linkRawTracepoint, linkIter:
		a.Target = linkText(fd, linkBodyAt, linkBodyAt+8)
	case linkUprobe:
		a.Target = linkText(fd, linkBodyAt, linkBodyAt+32)
	case linkPerfEvent:
		perfTarget(fd, body, &a)
	case linkCgroup:
		a.Cgroup = nativeOrder.Uint64(body)
		a.Target = cgroupPath(cgroups, a.Cgroup)
	case linkNetns:
		a.Target = fmt.Sprintf("net:%d", nativeOrder.Uint32(body))
	case linkXDP, linkTCX, linkNetk:
		a.Target = fmt.Sprintf("interface %d", nativeOrder.Uint32(body))
	}
	return nativeOrder.Uint32(info[linkProgAt:]), a, nil
}

// Kinds of links to perf events (enum bpf_perf_event_type), Linux 6.6.
const (
	perfUprobe, perfUretprobe, perfKprobe, perfKretprobe, perfTracepoint, perfEvent = 1, 2, 3, 4, 5, 6
)

// perfTarget describes a link to a perf event.
func perfTarget(fd *sys.FD, body []byte, a *perfdata.BPFAttachment) {
	const unionAt = linkBodyAt + 8
	var offset uint32
	switch kind := nativeOrder.Uint32(body); kind {
	case perfUprobe, perfUretprobe, perfKprobe, perfKretprobe:
		a.Target = linkText(fd, unionAt, unionAt+8)
		a.Kind = map[uint32]string{perfUprobe: "uprobe", perfUretprobe: "uretprobe", perfKprobe: "kprobe",
			perfKretprobe: "kretprobe"}[kind]
		offset = nativeOrder.Uint32(body[20:])
	case perfTracepoint:
		a.Target = linkText(fd, unionAt, unionAt+8)
		a.Kind = "tracepoint"
	case perfEvent:
		a.Target = fmt.Sprintf("type %d, config %d", nativeOrder.Uint32(body[16:]), nativeOrder.Uint64(body[8:]))
	}
	if offset != 0 && a.Target != "" {
		a.Target += fmt.Sprintf("+%#x", offset)
	}
}

// linkText asks again, with room for the text whose address and length are at
// these places. It is cut at linkName.
func linkText(fd *sys.FD, addrAt, lenAt int) string {
	info := make([]byte, linkInfoSize)
	text := make([]byte, linkName)
	binary.NativeEndian.PutUint32(info[lenAt:], linkName)
	if _, err := sys.BPFInfo(fd, info, sys.BPFArray{At: addrAt, Memory: text}); err != nil {
		return "" // too long, or an older kernel
	}
	if n := bytes.IndexByte(text, 0); n >= 0 {
		text = text[:n]
	}
	return string(text)
}

// cgroupPath finds the path of a cgroup of the v2 hierarchy.
func cgroupPath(tree *procfs.CgroupTree, id uint64) string {
	if tree == nil {
		return ""
	}
	found := ""
	stop := errors.New("found")
	_ = tree.Walk(func(got uint64, path string) error {
		if got == id {
			found = path
			return stop
		}
		return nil
	})
	return found
}
