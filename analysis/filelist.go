// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/buildid"
)

// fileList knows the files of a timeline by path and by process. A recording
// may have very many, and more come while it is read.
type fileList struct {
	seen   int // files that are in it
	byPath map[string]*pathFile
	dumps  map[int32][]*timeline.File // jitdump files by the process that has them mapped
}

// pathFile is what was seen at a path: the first file, and whether another one
// was there as well.
type pathFile struct {
	first   *timeline.File
	several bool
}

// update takes the files that came since.
func (l *fileList) update(files []*timeline.File) {
	if l.byPath == nil {
		l.byPath, l.dumps = make(map[string]*pathFile), make(map[int32][]*timeline.File)
	}
	for _, f := range files[l.seen:] {
		if at := l.byPath[f.Path]; at == nil {
			l.byPath[f.Path] = &pathFile{first: f}
		} else if o := at.first; o.Ino != f.Ino || o.Maj != f.Maj || o.Min != f.Min {
			at.several = true
		}
		if isJitdump(f.Path) && len(l.dumps[f.PID]) < maxDumps {
			l.dumps[f.PID] = append(l.dumps[f.PID], f)
		}
	}
	l.seen = len(files)
}

// oneContent reports whether f's path had one content only, so far.
func (s *Session) oneContent(f *timeline.File) bool {
	s.fileList.update(s.Timeline.Files())
	return !s.fileList.byPath[f.Path].several
}

// jitdumps are the jitdump files of a process, so far.
func (s *Session) jitdumps(pid int32) []*timeline.File {
	s.fileList.update(s.Timeline.Files())
	return s.fileList.dumps[pid]
}

// maxDumps bounds the jitdump files of a process that are read.
const maxDumps = 16

// mappedFiles are the files that a recording says were kept by their content, by
// path.
type mappedFiles map[string]buildid.MappedFiles

func indexFiles(list buildid.MappedFiles) mappedFiles {
	x := make(mappedFiles)
	for i := range list {
		x[list[i].Path] = append(x[list[i].Path], list[i])
	}
	return x
}

// find is the id that a mapped file was kept by.
func (x mappedFiles) find(file *buildid.Mapped) (buildid.ID, bool) { return x[file.Path].Find(file) }
