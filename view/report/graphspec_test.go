// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

func TestParseGraphSpec(t *testing.T) {
	for list, want := range map[string]GraphSpec{
		"graph":                             {},
		"caller":                            {Kind: CallGraphCaller, Set: true},
		"callee,2":                          {Kind: CallGraphCallee, Set: true, Limit: 2},
		"graph,0.5,caller":                  {Kind: CallGraphCaller, Set: true, Limit: 0.5},
		"caller,0.5,graph":                  {Kind: CallGraphCaller, Set: true, Limit: 0.5},
		"graph,0.5,callee,function,percent": {Kind: CallGraphCallee, Set: true, Limit: 0.5},
		"flat,callee":                       {Kind: CallGraphFlat, Set: true},
		"none":                              {Set: true},
		"0":                                 {Limit: -1},
		"100":                               {Limit: 100},
	} {
		if got, err := ParseGraphSpec(list); err != nil || got != want {
			t.Errorf("%q: %+v, %v", list, got, err)
		}
	}
	for list, want := range map[string]string{
		"foo": "-g foo: unknown call graph", "graph,foo": "-g foo: unknown", "": "empty word", "fractal": "use graph",
		"folded": "--format folded", "address": "use function", "branch": "leave it out", "count": "percent",
		"caller,-1": "0 to 100", "101": "0 to 100", "nan": "0 to 100", "inf": "0 to 100", "0.5,10": "second number",
		"caller,callee": "choose one of caller and callee", "flat,none": "choose one", "flat,caller": "leave out caller",
	} {
		if got, err := ParseGraphSpec(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", list, got, err, want)
		}
	}
}
