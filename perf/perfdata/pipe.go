// SPDX-License-Identifier: Apache-2.0

package perfdata

// Pipe reports whether the input is a stream, as perf writes to a pipe.
func (r *Reader) Pipe() bool { return r.pipe }
