// SPDX-License-Identifier: Apache-2.0

package container

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		"std::vector<int>::at":  "std::vector<int>::at",
		"naïve_日本":              "naïve_日本",
		"a\x1b[31mb\x07":        `a\x1b[31mb\x07`,
		"tab\tnew\nline\x7f":    `tab\x09new\x0aline\x7f`,
		"\xff\xfe":              `\xff\xfe`,
		"c1\u009b":              `c1\u009b`,
		"bidi\u202eevil\u2066":  `bidi\u202eevil\u2066`,
		"zero\u200bwidth\ufeff": `zero\u200bwidth\ufeff`,
		"tag\U000e0041":         `tag\U000e0041`,
		"replacement \ufffd":    "replacement \ufffd",
		"line\u2028end":         `line\u2028end`,
		"half\xe6\x97":          `half\xe6\x97`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31m")
	f.Add("\xff\u202e日本")
	f.Fuzz(func(t *testing.T, s string) {
		got := Printable(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: got %q", s, got)
		}
		if again := Printable(got); again != got {
			t.Errorf("%q: got %q, then %q", s, got, again)
		}
	})
}
