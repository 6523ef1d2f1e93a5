// SPDX-License-Identifier: Apache-2.0

package opener

import _ "embed"

//go:embed opener_arm64.bin
var code []byte
