// SPDX-License-Identifier: Apache-2.0

// Package archive packs a recording, and what its report needs of the machine
// it was made on, into one file: [Writer] while a report is made, [Archive] to
// make the same report anywhere.
//
// An archive is a zip file:
//
//	perf.data                            the recording as it was
//	debug/.build-id/ab/cdef.../elf       binaries by build-id, and likewise
//	debug/.build-id/ab/cdef.../debug     their separate symbols
//	files/SHA256                         files without an id, or a second one
//	kallsyms                             the kernel's symbols
//	gantry.json                          the answers to each question
//
// Unpacked it is what "perf report --buildid-dir debug" reads. The answers in
// gantry.json say which file an opener gave for which [symbol.Ref]: a report of
// the archive asks the same questions and gets the same files.
//
// An archive comes from anywhere and is taken as hostile: its names are compared
// and never used as paths, its sizes bound nothing but themselves.
package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
)

// ErrNotArchive is returned for a file that is no archive.
var ErrNotArchive = errors.New("not an archive of gantry")

// ErrTooLarge is returned for what an archive has too much of.
var ErrTooLarge = errors.New("too large")

// Magic begins an archive, as it does every zip file with something in it.
const Magic = "PK\x03\x04"

// Names of the parts.
const (
	recordingName = "perf.data"
	manifestName  = "gantry.json"
	kallsymsName  = "kallsyms"
	filesDir      = "files/"
	storeDir      = "debug/.build-id/"
)

// formatVersion changes when an old reader would make another report.
const formatVersion = 1

// Kernel is what a recording tells of the kernel whose symbols are packed.
type Kernel struct {
	BuildID buildid.ID `json:"build_id,omitzero"`
	Release string     `json:"release,omitempty"`
	Arch    string     `json:"arch,omitempty"`
}

// manifest is gantry.json.
type manifest struct {
	Version int `json:"version"`
	// Openers is how many there were; answers count them from 0.
	Openers int     `json:"openers"`
	Kernel  *Kernel `json:"kernel,omitempty"`
	Answers answers `json:"answers"`
}

// A question is what an opener was asked.
type question struct {
	Opener  int        `json:"opener"`
	Kind    kind       `json:"kind"`
	BuildID buildid.ID `json:"build_id,omitzero"`
	Path    string     `json:"path,omitempty"`
	// Inode counts without a build-id only.
	Inode   uint64 `json:"inode,omitempty"`
	MountNS uint64 `json:"mount_ns,omitempty"`
	// Link is the path of OpenLink.
	Link string `json:"link,omitempty"`
}

// kind is the method that asked.
type kind string

const (
	binaryKind kind = "binary" // Open
	debugKind  kind = "debug"  // OpenDebug
	linkKind   kind = "link"   // OpenLink
	codeKind   kind = "code"   // OpenPerfMap
)

type answer struct {
	question
	// File is the name of the part.
	File string `json:"file"`
}

type answers []answer

// UnmarshalJSON reads what json.Marshal wrote; null is none. Too long a list is
// given up while it is read: an answer of two bytes is one of a hundred in memory.
func (l *answers) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	start, err := dec.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return errors.New("answers are not a list")
	}
	*l = nil
	for dec.More() {
		if len(*l) == maxAnswers {
			return fmt.Errorf("more than %d answers: %w", maxAnswers, ErrTooLarge)
		}
		var a answer
		if err := dec.Decode(&a); err != nil {
			return err
		}
		*l = append(*l, a)
	}
	return nil
}

// ask is the question that a method is asked. Which process had the file is not
// a part of it: it is another one in another report.
func ask(opener int, k kind, ref symbol.Ref, link string) question {
	q := question{Opener: opener, Kind: k, BuildID: ref.BuildID, Path: ref.Path, Inode: ref.Inode, MountNS: ref.MountNS,
		Link: link}
	if !q.BuildID.IsZero() {
		q.Inode = 0
	}
	return q
}

// storeName is the place of a file in perf's layout.
func storeName(id buildid.ID, name string) string {
	text := id.String()
	return fmt.Sprintf("%s%s/%s/%s", storeDir, text[:2], text[2:], name)
}
