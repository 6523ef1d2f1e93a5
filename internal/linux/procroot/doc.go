// SPDX-License-Identifier: Apache-2.0

// Package procroot opens files in the mount namespaces of other processes,
// below their root directories (/proc/PID/root).
//
// Such files are hostile: a path may lead out of the root through a link, a
// device acts on being opened, a FIFO waits, and a file system may never
// answer, because its server is gone (NFS) or is a program of the container
// (FUSE). [Files] walks paths so that none of this happens: nothing but regular
// files is opened, links stay below the root, and pseudo file systems (proc,
// sysfs, FUSE and their kin) are refused, before they are asked for anything.
//
// What remains is a disk or a server elsewhere that does not answer. [Access]
// bounds that: it runs an operation in a goroutine, waits for it up to a
// deadline, and abandons it then.
package procroot
