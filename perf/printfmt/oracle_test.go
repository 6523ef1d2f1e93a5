// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// oracleCase is a call of printf whose arguments are constants of C.
type oracleCase struct{ format, args string }

// numberCases are all verbs for numbers with all sizes, flags, widths and precisions
// that the kernel's lines have, of values at the ends of each size.
func numberCases() (list []oracleCase) {
	sizes := []struct{ letters, cast string }{
		{"hh", "(signed char)"}, {"h", "(short)"}, {"", "(int)"}, {"l", "(long)"}, {"ll", "(long long)"},
	}
	values := []string{
		"0", "1", "-1", "7", "-42", "127", "128", "255", "256", "32767", "-32768", "65535", "2147483647",
		"-2147483647", "4294967295", "9223372036854775807", "-9223372036854775807",
	}
	forms := []string{"", "5", "-5", "05", "+", " ", "#", "12", "-12", "012", ".3", "8.3", "-8.3", ".1", "#8", "#08"}
	for _, size := range sizes {
		for _, conv := range []string{"d", "i", "u", "x", "X", "o"} {
			for _, form := range forms {
				if strings.ContainsAny(form, "+ ") && conv != "d" && conv != "i" {
					continue // not defined, and warned of by compilers
				}
				if strings.Contains(form, "#") && strings.Contains("diu", conv) {
					continue
				}
				for _, v := range values {
					list = append(list, oracleCase{"%" + form + size.letters + conv, size.cast + "(" + v + "LL)"})
				}
			}
		}
	}
	return list
}

// textCases are the others.
func textCases() (list []oracleCase) {
	for _, form := range []string{"", "1", "3", "8", "-8", ".0", ".2", ".9", "8.2", "-8.2"} {
		for _, v := range []string{`""`, `"a"`, `"hello"`, `"with space"`, `"per%cent"`} {
			list = append(list, oracleCase{"%" + form + "s", v})
		}
	}
	for _, c := range []string{"65", "48", "126"} {
		for _, form := range []string{"", "4", "-4"} {
			list = append(list, oracleCase{"%" + form + "c", c})
		}
	}
	for _, width := range []string{"0", "1", "6", "-6"} {
		for _, v := range []string{"5", "-5", "123456789"} {
			list = append(list, oracleCase{"%*d", "(int)" + width + ", " + v}, oracleCase{"%.*d", "3, " + v})
		}
		list = append(list, oracleCase{"%*s", width + `, "abc"`}, oracleCase{"%.*s", `2, "abc"`})
	}
	return append(list, oracleCase{"100%% %d%%", "7"}, oracleCase{"%d %s %x", `-1, "b", 255`})
}

// TestPrintf compares with printf of the C library.
func TestPrintf(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	cases := append(numberCases(), textCases()...)
	var source strings.Builder
	source.WriteString("#include <stdio.h>\nint main(void) {\n")
	for _, c := range cases {
		fmt.Fprintf(&source, "\tprintf(%q \"\\n\", %s);\n", c.format, c.args)
	}
	source.WriteString("\treturn 0;\n}\n")
	// -O0, as there are thousands of lines; the formats are not to be checked.
	out, err := exec.Command(testutil.CompileC(t, source.String(), "-O0", "-w")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(want) != len(cases) {
		t.Fatalf("%d lines of %d cases", len(want), len(cases))
	}
	wrong := 0
	for i, c := range cases {
		f, err := compile(t, fmt.Sprintf("%q, %s", c.format, strings.ReplaceAll(c.args, "LL)", ")")))
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if got := string(f.Append(nil, testRaw(), perf.LittleEndian)); got != want[i] {
			if wrong++; wrong <= 20 {
				t.Errorf("%s of %s: %q, printf has %q", c.format, c.args, got, want[i])
			}
		}
	}
	t.Logf("%d calls of printf, %d differ", len(cases), wrong)
}
