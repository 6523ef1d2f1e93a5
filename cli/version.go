// SPDX-License-Identifier: Apache-2.0

package cli

// version is set by the linker, see the Makefile.
var version = "unknown"
