// SPDX-License-Identifier: Apache-2.0

package join

import _ "embed"

//go:embed join_arm64.bin
var code []byte
