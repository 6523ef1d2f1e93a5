// SPDX-License-Identifier: Apache-2.0

package swiftlang

import (
	"strings"
	"unicode/utf8"
)

// decodePunycode decodes a name by RFC 3492, with "_" as delimiter, and A to J
// as the digits 26 to 35.
func decodePunycode(s string) (string, bool) {
	const base, tMin, tMax, skew, damp, initial, longest = 36, 1, 26, 38, 700, 128, 1 << 10
	if len(s) > longest {
		return "", false
	}
	var out []rune
	if at := strings.LastIndexByte(s, '_'); at >= 0 {
		out, s = []rune(s[:at]), s[at+1:]
	}
	n, i, bias := initial, 0, 72
	for pos := 0; pos < len(s); {
		before, weight := i, 1
		for k := base; ; k += base {
			if pos >= len(s) {
				return "", false
			}
			digit, ok := punyDigit(s[pos])
			pos++
			if i += digit * weight; !ok || i > utf8.MaxRune*longest {
				return "", false
			}
			t := min(max(k-bias, tMin), tMax)
			if digit < t {
				break
			}
			if weight *= base - t; weight > utf8.MaxRune*longest {
				return "", false
			}
		}
		count := len(out) + 1
		delta := (i - before) / 2
		if before == 0 {
			delta = (i - before) / damp
		}
		bias = 0
		for delta += delta / count; delta > (base-tMin)*tMax/2; bias += base {
			delta /= base - tMin
		}
		bias += (base - tMin + 1) * delta / (delta + skew)
		n += i / count
		i %= count
		if !utf8.ValidRune(rune(n)) || n > utf8.MaxRune {
			return "", false
		}
		out = append(out, 0)
		copy(out[i+1:], out[i:])
		out[i] = rune(n)
		i++
	}
	return string(out), true
}

func punyDigit(c byte) (int, bool) {
	switch {
	case c >= 'a' && c <= 'z':
		return int(c - 'a'), true
	case c >= 'A' && c <= 'J':
		return int(c-'A') + 26, true
	}
	return 0, false
}
