// SPDX-License-Identifier: Apache-2.0

package container

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxGlob bounds a pattern, and the path of a cgroup that one may match,
	// as the kernel does (PATH_MAX).
	maxGlob = 4096
	// maxComponents bounds those of a pattern. With maxGlobs it bounds what
	// a hostile recording, which has both patterns and paths, may cost.
	maxComponents = 32
)

// anyComponents is the component of a glob that stands for any number of
// components, none included.
const anyComponents = "**"

// cleanGlob checks a pattern and gives it in the one form that is kept:
// without slashes that say nothing.
func cleanGlob(glob string) (string, *DefinitionError) {
	switch {
	case glob == "":
		return "", wrong(ErrEmpty, 0, "the cgroup pattern is empty: write cgroup=/path/*")
	case !utf8.ValidString(glob):
		return "", wrong(ErrGlob, 0, "cgroup pattern %q is not UTF-8: write ? for a byte", glob)
	case len(glob) > maxGlob:
		return "", wrong(ErrGlob, maxGlob, "the cgroup pattern is longer than %d bytes", maxGlob)
	case glob != anyComponents && !strings.HasPrefix(glob, "/") && !strings.HasPrefix(glob, anyComponents+"/"):
		return "", wrong(ErrGlob, 0, "cgroup pattern %q does not begin with /: write /%s, or **/%s for any depth", glob,
			glob, glob)
	}
	var clean []string
	onlyAny := true
	pos := 0
	for c := range strings.SplitSeq(glob, "/") {
		if c != "" && (c != anyComponents || len(clean) == 0 || clean[len(clean)-1] != anyComponents) {
			if err := checkComponent(c, pos); err != nil {
				return "", err
			}
			clean = append(clean, unescapeGlob(c))
			onlyAny = onlyAny && c == anyComponents
		}
		pos += len(c) + 1
	}
	if len(clean) > maxComponents {
		return "", wrong(ErrGlob, 0, "the cgroup pattern has more than %d components", maxComponents)
	}
	if onlyAny {
		return "", wrong(ErrGlob, 0, "cgroup pattern %q means the root cgroup, and so every task: name a cgroup", glob)
	}
	return "/" + strings.Join(clean, "/"), nil
}

func checkComponent(c string, pos int) *DefinitionError {
	switch {
	case c == anyComponents:
	case c == "." || c == "..":
		return wrong(ErrGlob, pos, "%q in a cgroup pattern matches nothing: no cgroup has that name", c)
	case strings.Contains(c, anyComponents):
		return wrong(ErrGlob, pos+strings.Index(c, anyComponents),
			"** is not a whole component in %q: write * inside of one", c)
	default:
		if _, err := path.Match(c, ""); err != nil {
			return wrong(ErrGlob, pos, "%q is no pattern: a [ is not closed, or a \\ ends it", c)
		}
	}
	return nil
}

// globEscaper makes a path the pattern that matches nothing else.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// unescapeGlob takes the \ away in front of a ;, which is only needed in the
// text of a definition.
func unescapeGlob(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if s[i+1] != ';' {
				b.WriteByte('\\')
			}
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// matchGlob finds the outermost of cgroup and its parents that a clean glob
// matches, "" if none does.
//
// The patterns that have matched so far are a set that moves along with the
// components: the work is their number times that of the pattern's, whatever
// stars it has.
func matchGlob(glob, cgroup string) string {
	pattern := strings.Split(glob[1:], "/")
	states := make([]bool, len(pattern)+1)
	next := make([]bool, len(pattern)+1)
	states[0] = true
	skipAny(states, pattern)
	for start := 0; start < len(cgroup); {
		if cgroup[start] == '/' {
			start++
			continue
		}
		end := len(cgroup)
		if i := strings.IndexByte(cgroup[start:], '/'); i >= 0 {
			end = start + i
		}
		clear(next)
		for i, p := range pattern {
			switch {
			case !states[i]:
			case p == anyComponents:
				next[i] = true
			default:
				// The pattern was checked: it has no error.
				ok, _ := path.Match(p, cgroup[start:end])
				next[i+1] = next[i+1] || ok
			}
		}
		skipAny(next, pattern)
		states, next = next, states
		if states[len(pattern)] {
			return cgroup[:end]
		}
		if !slices.Contains(states, true) {
			break
		}
		start = end
	}
	return ""
}

// skipAny lets every ** stand for nothing.
func skipAny(states []bool, pattern []string) {
	for i, p := range pattern {
		if states[i] && p == anyComponents {
			states[i+1] = true
		}
	}
}

// CgroupOf is the path of the container's cgroup for a task in the cgroup with
// that path: the outermost one that a glob matches. It is not ok if none does.
func (d *Definition) CgroupOf(cgroup string) (string, bool) {
	found := ""
	if len(cgroup) > maxGlob {
		return "", false
	}
	for _, g := range d.Cgroups {
		if p := matchGlob(g, cgroup); p != "" && (found == "" || len(p) < len(found)) {
			found = p
		}
	}
	return found, found != ""
}
