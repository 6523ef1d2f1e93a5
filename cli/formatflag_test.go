// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestFormatOf(t *testing.T) {
	formats := []string{"text", "json", "folded", "svg", "pprof"}
	for _, tt := range []struct {
		output, format string
		given          bool
		want           string
	}{
		{"-", "text", false, "text"}, {"report", "text", false, "text"}, {"a/flame.SVG", "text", false, "svg"},
		{"cpu.pb.gz", "text", false, "pprof"},
		{"x.json", "json", true, "json"}, {"x", "svg", true, "svg"}, {"dir.svg/x", "text", false, "text"},
		{"x.svg", "text", true, ""},
		{"x.txt", "json", true, ""}, {"x.tar.gz", "text", false, "text"},
	} {
		got, err := formatOf(tt.output, tt.format, tt.given, formats)
		if (err != nil) != (tt.want == "") || err == nil && got != tt.want {
			t.Errorf("-o %s --format %s: %s, %v, want %q", tt.output, tt.format, got, err, tt.want)
		}
	}
	if got, err := formatOf("x.svg", "json", true, []string{"table", "json"}); got != "json" || err != nil {
		t.Errorf("a name of a format that the command has not: %s, %v", got, err)
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"container", "comm", "sym", "srcline"}
	for word, want := range map[string]string{
		"contaner": "container", "conatiner": "container", "containers": "container", "con": "container",
		"src": "srcline", "comn": "comm",
		"x": "", "": "", "symmm": "", "nothing": "",
	} {
		if want != "" {
			want = "did you mean " + want + "?"
		}
		if got := didYouMean(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
