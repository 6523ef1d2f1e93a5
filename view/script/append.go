// SPDX-License-Identifier: Apache-2.0

package script

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// appendHex appends v in at least width columns, filled with spaces.
func appendHex(dst []byte, v uint64, width int) []byte {
	const digits = "0123456789abcdef"
	n := (bits.Len64(v|1) + 3) / 4
	dst = spaces(dst, width-n)
	for n--; n >= 0; n-- {
		dst = append(dst, digits[v>>(4*n)&15])
	}
	return dst
}

// appendUint appends v in at least width columns.
func appendUint(dst []byte, v uint64, width int, fill byte) []byte {
	var b [20]byte
	s := strconv.AppendUint(b[:0], v, 10)
	for n := width - len(s); n > 0; n-- {
		dst = append(dst, fill)
	}
	return append(dst, s...)
}

// appendInt appends v in at least width columns, to the left if it is
// negative.
func appendInt(dst []byte, v int32, width int) []byte {
	var b [12]byte
	s := strconv.AppendInt(b[:0], int64(v), 10)
	n := max(width, -width) - len(s)
	if width > 0 {
		dst = spaces(dst, n)
	}
	dst = append(dst, s...)
	if width < 0 {
		dst = spaces(dst, n)
	}
	return dst
}

func spaces(dst []byte, n int) []byte {
	for ; n > 0; n-- {
		dst = append(dst, ' ')
	}
	return dst
}

// appendText appends a name that may be hostile in at least width columns.
func appendText(dst []byte, s string, width int) []byte {
	s = profile.Printable(s)
	return append(spaces(dst, width-len(s)), s...)
}

// cleanFrom makes what was appended to dst since start harmless. Tabs are.
func cleanFrom(dst []byte, start int) []byte {
	for len(dst) > start && dst[len(dst)-1] == '\n' {
		dst = dst[:len(dst)-1]
	}
	for _, c := range dst[start:] {
		if (c < ' ' && c != '\t') || c >= 0x7f {
			words := strings.Split(string(dst[start:]), "\t")
			for i, w := range words {
				words[i] = profile.Printable(w)
			}
			return append(dst[:start], strings.Join(words, "\t")...)
		}
	}
	return dst
}
