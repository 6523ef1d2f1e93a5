// SPDX-License-Identifier: Apache-2.0

package perfdata

import "fmt"

var bpfTypes = [...]string{"unspec", "socket_filter", "kprobe", "sched_cls", "sched_act", "tracepoint", "xdp",
	"perf_event",
	"cgroup_skb", "cgroup_sock", "lwt_in", "lwt_out", "lwt_xmit", "sock_ops", "sk_skb", "cgroup_device", "sk_msg",
	"raw_tracepoint", "cgroup_sock_addr", "lwt_seg6local", "lirc_mode2", "sk_reuseport", "flow_dissector",
	"cgroup_sysctl",
	"raw_tracepoint_writable", "cgroup_sockopt", "tracing", "struct_ops", "ext", "lsm", "sk_lookup", "syscall",
	"netfilter"}

// BPFTypeName is bpftool's name of a program's type (enum bpf_prog_type of
// linux/bpf.h), or its number.
func BPFTypeName(typ uint32) string {
	if typ < uint32(len(bpfTypes)) {
		return bpfTypes[typ]
	}
	return fmt.Sprintf("type_%d", typ)
}
