// SPDX-License-Identifier: Apache-2.0

package join

import _ "embed"

//go:embed join_amd64.bin
var code []byte
