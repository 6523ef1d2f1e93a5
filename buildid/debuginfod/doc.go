// SPDX-License-Identifier: Apache-2.0

// Package debuginfod speaks the protocol of elfutils' debuginfod, over which
// debuggers and profilers get binaries and symbols by build-id: [Client] asks
// servers, [Handler] answers from a build-id store.
//
// A client asks only those servers that it is given. It keeps what it gets in
// the cache that other clients of the machine have, and believes no server:
// the id of each file is checked.
package debuginfod
