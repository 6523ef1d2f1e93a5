// SPDX-License-Identifier: Apache-2.0

package profile

import "github.com/gantry-tools/gantry/container"

// Printable is container.Printable: names come from containers and may be
// anything. Every text view passes them through here.
func Printable(s string) string { return container.Printable(s) }
