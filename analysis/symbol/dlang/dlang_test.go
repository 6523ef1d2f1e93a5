// SPDX-License-Identifier: Apache-2.0

package dlang

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestDemangle(t *testing.T) {
	for _, tt := range []struct{ name, bare, whole string }{
		{"_Dmain", "D main", "D main"},
		{"_D3foo3barFiAaZv", "foo.bar", "foo.bar(int, char[])"},
		{"_D3foo3Bar6__ctorMFiZC3foo3Bar", "foo.Bar.this", "foo.Bar.this(int)"},
		{"_D3foo3barFZ3bazMxFNaZv", "foo.bar.baz", "foo.bar().baz() const"},
		{"_D3foo3Bar10__postblitMFZv", "foo.Bar.this(this)", "foo.Bar.this(this)"},
		{"_D3foo3Bar6__initZ", "initializer for foo.Bar", "initializer for foo.Bar"},
		{"_D3foo4__S13barFZv", "foo.bar", "foo.bar()"},
		{"_D4core__T3barTiZQhFNaiZv", "core.bar!(int).bar", "core.bar!(int).bar(int)"},
		{"_D8demangle11__T4testTaZ4testFaZv", "demangle.test!(char).test", "demangle.test!(char).test(char)"},
		{"_D3foo__T3barVAyaa4_615c220aZQuFZv", `foo.bar!("a\"\n").bar`, `foo.bar!("a\"\n").bar()`},
		{"_D3foo3barFDxFNaKiZvPUiXaZv", "foo.bar", "foo.bar(void(ref int) pure delegate const, extern(C) char(int...) function)"},
		{"_D3foo3bari", "foo.bar", "foo.bar"},
		// None of the language.
		{"", "", ""}, {"_D", "", ""}, {"_D3foo", "", ""}, {"_D9foo3bari", "", ""}, {"_D3foo3barFiZ", "", ""}, {"_D3foo3barFiZvv", "", ""},
		{"_ZN3foo3barEv", "", ""}, {"_D3fooQaFZv", "", ""}, {"_D3fooQzFZv", "", ""}, {"_D0Z", "", ""}, {"_DD3foo", "", ""}, {"_D99999999999999999999foo", "", ""},
		{"_D3fooFPQbZv", "", ""}, {"_D3fooFHiZv", "", ""}, {"_D3foo__T3barTi", "", ""}, {"_D3foo__T3barVAyaa9_61ZQuFZv", "", ""},
	} {
		for _, x := range []struct {
			params bool
			want   string
		}{{false, tt.bare}, {true, tt.whole}} {
			if got, ok := Demangle(tt.name, x.params); got != x.want || ok != (x.want != "") {
				t.Errorf("%q, parameters %v: %q, %v, want %q", tt.name, x.params, got, ok, x.want)
			}
		}
	}
}

// maker makes names by the grammar.
type maker struct {
	*rand.Rand
	b            []byte
	names, types []int // where they begin
	depth        int
}

// back writes a reference to one of the places, if there is one.
func (m *maker) back(places []int) bool {
	if len(places) == 0 || m.IntN(4) > 0 {
		return false
	}
	n := len(m.b) - places[m.IntN(len(places))]
	text := []byte{byte('a' + n%26)}
	for n /= 26; n > 0; n /= 26 {
		text = append([]byte{byte('A' + n%26)}, text...)
	}
	m.b = append(append(m.b, 'Q'), text...)
	return true
}

func (m *maker) put(format string, args ...any) { m.b = fmt.Appendf(m.b, format, args...) }

func (m *maker) plain() {
	if m.back(m.names) {
		return
	}
	m.names = append(m.names, len(m.b))
	names := []string{"foo", "bar", "Baz", "_x1", "opCall", "longer_name_here", "i", "writeln"}
	name := names[m.IntN(len(names))]
	m.put("%d%s", len(name), name)
}

func (m *maker) qualified() {
	m.depth++
	for n := 1 + m.IntN(3); n > 0; n-- {
		if m.depth < 5 && m.IntN(5) == 0 {
			m.put("__%c", "TU"[m.IntN(2)])
			m.plain()
			for n := m.IntN(4); n > 0; n-- {
				m.argument()
			}
			m.put("Z")
		} else {
			m.plain()
		}
		if n > 1 && m.depth < 3 && m.IntN(6) == 0 {
			m.function()
		}
	}
	m.depth--
}

func (m *maker) argument() {
	switch m.IntN(5) {
	case 0, 1:
		m.put("T")
		m.typ()
	case 2:
		m.put("S")
		m.qualified()
	default:
		m.put("V")
		m.value()
	}
}

func (m *maker) value() {
	values := []string{"i10", "iN5", "bi1", "bi0", "ki7", "li8", "mi9", "hi1", "ti65535", "ai97", "ai10", "ui98", "wi99", "Pin", "de0A8P1", "deNAN", "deN1P2",
		"deNINF", "Ayaa3_616263", "Ayaa2_0a22", "Auw3_610a62", "Ayad1_7f", "AiA3i1i2N3", "HiaA2i1i97i2i98", "S3foo1SS2i1i2", "rc0A8P1c1P2", "E3foo1Ei5"}
	m.put("%s", values[m.IntN(len(values))])
}

func (m *maker) function() {
	if m.IntN(3) == 0 {
		m.put("M%s", []string{"", "x", "y", "O", "Ng", "Ox"}[m.IntN(6)])
	}
	m.signature("FFFFUWVRY")
}

func (m *maker) signature(conventions string) {
	m.put("%c", conventions[m.IntN(len(conventions))])
	for range m.IntN(3) {
		m.put("N%c", "abcdefijlm"[m.IntN(10)])
	}
	for n := m.IntN(4); n > 0; n-- {
		m.put("%s", []string{"", "", "", "M", "Nk", "I", "J", "K", "L", "MNkK"}[m.IntN(10)])
		m.typ()
	}
	m.put("%c", "ZZZXY"[m.IntN(5)])
}

func (m *maker) typ() {
	m.depth++
	defer func() { m.depth-- }()
	if m.back(m.types) {
		return
	}
	at := len(m.b)
	if m.depth > 6 {
		m.put("i")
		return
	}
	switch m.IntN(14) {
	case 0:
		m.put("A")
		m.typ()
	case 1:
		m.put("G%d", m.IntN(100))
		m.typ()
	case 2:
		m.put("H")
		m.typ()
		m.typ()
	case 3:
		m.put("P")
		m.typ()
	case 4:
		m.put("%s", []string{"x", "y", "O", "Ng"}[m.IntN(4)])
		m.typ()
	case 5:
		m.put("%c", "CSE"[m.IntN(3)])
		m.qualified()
	case 6:
		m.put("D%s", []string{"", "x", "O"}[m.IntN(3)])
		m.signature("FU")
		m.typ()
	case 7:
		m.put("P")
		m.signature("FUR")
		m.typ()
	case 8:
		m.put("B%d", 2)
		m.typ()
		m.typ()
	default:
		m.put("%s", []string{"v", "g", "h", "s", "t", "i", "k", "l", "m", "f", "d", "e", "b", "a", "u", "w", "n", "zi", "zk", "r", "c", "q"}[m.IntN(22)])
	}
	m.types = append(m.types, at)
}

// Names made by the grammar are demangled as binutils do.
func TestAgainstBinutils(t *testing.T) {
	testutil.Require(t, testutil.Tool("c++filt"))
	m := &maker{Rand: rand.New(rand.NewPCG(1, 2))}
	var list []string
	for range 20_000 {
		m.b, m.names, m.types, m.depth = []byte("_D"), nil, nil, 0
		m.qualified()
		if m.IntN(4) > 0 {
			m.function()
		}
		m.typ()
		list = append(list, string(m.b))
	}
	cmd := exec.Command("c++filt", "-s", "dlang")
	cmd.Stdin = strings.NewReader(strings.Join(list, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		testutil.NotHere(t, "needs a c++filt that knows dlang: %v", err)
	}
	want := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(want) != len(list) {
		t.Fatalf("c++filt gave %d lines for %d names", len(want), len(list))
	}
	same, refused, bad := 0, 0, 0
	for i, name := range list {
		got, ok := Demangle(name, true)
		switch {
		case want[i] == name:
			refused++ // by c++filt
		case ok && got == want[i]:
			same++
		default:
			if bad++; bad <= 10 {
				t.Logf("%s\n got %q\nwant %q", name, got, want[i])
			}
		}
	}
	t.Logf("%d same, %d others, %d refused by c++filt", same, bad, refused)
	// The grammar can read a few names in two ways.
	if same < len(list)*9/10 || bad > len(list)/1000 {
		t.Errorf("of %d names %d are the same, %d are not", len(list), same, bad)
	}
}

// FuzzDemangle checks that the work ends and what comes out is bounded.
func FuzzDemangle(f *testing.F) {
	for _, name := range []string{"_D3foo3barFiAaZv", "_D4core__T3barTiZQhFNaiZv", "_D3foo__T3barVAyaa4_615c220aZQuFZv", "_D3foo3barFDxFNaKiZvHiPaZv", "_D3fooFAQbZv"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, params := range []bool{false, true} {
			if got, ok := Demangle(name, params); len(got) > 2*maxOutput+2*len(name) || ok == (got == "") {
				t.Fatalf("%q: %d bytes, %v", name, len(got), ok)
			}
		}
	})
}
