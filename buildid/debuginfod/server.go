// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
)

// Headers of answers: the first two are from debuginfod(8), headerFrom says
// whether a container brought the file.
const (
	headerSize = "X-Debuginfod-Size"
	headerFile = "X-Debuginfod-File"
	headerFrom = "X-Gantry-From"
)

const (
	// maxRequests bounds the requests that are answered at once. Each holds at
	// most two files open.
	maxRequests = 64
	// writeTimeout is how long a client may take for 32 KiB.
	writeTimeout = 30 * time.Second
	// maxResults bounds the answer to a question for metadata.
	maxResults = 10_000
)

// Handler answers requests of debuginfod clients from a store, and nothing else:
// no part of a request becomes a path. It may be used by many goroutines.
type Handler struct {
	// Containers has it answer with files of containers as well, by the build-ids
	// that they claim, where the store has no other. Clients cannot tell: they
	// believe that whoever has the id has the right file.
	Containers bool

	store *buildid.Store
	slots chan struct{}
}

// NewHandler makes a Handler. The store stays the caller's.
func NewHandler(store *buildid.Store) *Handler {
	return &Handler{store: store, slots: make(chan struct{}, maxRequests)}
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
		return
	}
	p := &patientWriter{w, http.NewResponseController(w)}
	if p.wait() != nil {
		return // the connection is gone
	}
	w = p
	if r.URL.Path == "/metadata" {
		h.metadata(w, r)
		return
	}
	a, err := h.find(r.URL.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, buildid.ErrMismatch):
		http.Error(w, "not found", http.StatusNotFound)
		return
	case err != nil: // what the store could not read; its words are for its owner
		http.Error(w, "cannot be read", http.StatusInternalServerError)
		return
	}
	defer a.file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(headerSize, strconv.FormatInt(a.content.Size(), 10))
	w.Header().Set(headerFile, headerText(a.name))
	if a.container {
		w.Header().Set(headerFrom, "container")
	}
	http.ServeContent(w, r, "", time.Time{}, a.content)
}

// headerText is a name that a container may have chosen, as a header can have it.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, s)
}

// patientWriter gives a slow client time as long as it takes something.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// wait gives the client another while from now on. What has no deadline (a
// test's recorder) has no deadline.
func (w *patientWriter) wait() error {
	err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (w *patientWriter) Write(b []byte) (int, error) {
	if err := w.wait(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// artifact is a file, or a part of one, that answers a request.
type artifact struct {
	file      *os.File
	content   *io.SectionReader
	name      string
	container bool // brought by one, whose word the build-id is
}

// find opens what a path asks for: /buildid/ID/WHAT or /buildid/ID/WHAT/ARGUMENT.
// The error is fs.ErrNotExist for anything else.
func (h *Handler) find(path string) (*artifact, error) {
	rest, ok := strings.CutPrefix(path, "/buildid/")
	text, rest, ok2 := strings.Cut(rest, "/")
	id, err := buildid.Parse(text)
	if !ok || !ok2 || err != nil {
		return nil, fs.ErrNotExist
	}
	what, arg, hasArg := strings.Cut(rest, "/")
	switch {
	case what == "executable" && !hasArg:
		return h.either(id, h.store.Lookup, h.store.LookupContainer)
	case what == "debuginfo" && !hasArg:
		return h.debuginfo(id)
	case what == "section" && arg != "":
		return h.section(id, arg)
	case what == "source" && arg != "":
		f, size, err := h.store.LookupSource(id, "/"+arg)
		return opened(f, size, "/"+arg, err)
	}
	return nil, fs.ErrNotExist
}

type lookup func(buildid.ID) (*os.File, int64, error)

func (h *Handler) whole(id buildid.ID, open lookup) (*artifact, error) {
	f, size, err := open(id)
	return opened(f, size, h.store.Entry(id).Path, err)
}

// either opens what the host vouches for or, if it may, what a container brought.
func (h *Handler) either(id buildid.ID, own, container lookup) (*artifact, error) {
	a, err := h.whole(id, own)
	if h.Containers && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, buildid.ErrMismatch)) {
		if a, err = h.whole(id, container); err == nil {
			a.container = true
		}
	}
	return a, err
}

func opened(f *os.File, size int64, name string, err error) (*artifact, error) {
	if err != nil {
		return nil, err
	}
	return &artifact{file: f, content: io.NewSectionReader(f, 0, size), name: path.Base(name)}, nil
}

// debuginfo opens the separate symbols, or the binary if it has its own.
func (h *Handler) debuginfo(id buildid.ID) (*artifact, error) {
	a, err := h.either(id, h.store.LookupDebug, h.store.LookupContainerDebug)
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, buildid.ErrMismatch) {
		return a, err
	}
	if a, err = h.either(id, h.store.Lookup, h.store.LookupContainer); err != nil {
		return nil, err
	}
	if !hasSymbols(a.content) {
		a.file.Close()
		return nil, fs.ErrNotExist
	}
	return a, nil
}

func hasSymbols(r *io.SectionReader) bool {
	f, err := elffile.Open(r, r.Size())
	return err == nil && slices.ContainsFunc(f.Sections, func(sec *elf.Section) bool {
		return sec.Type == elf.SHT_SYMTAB || strings.HasPrefix(sec.Name, ".debug_") ||
			strings.HasPrefix(sec.Name, ".zdebug_")
	})
}

// section opens the bytes of a section as the file has them, compressed or not:
// those of the separate symbols, else those of the binary.
func (h *Handler) section(id buildid.ID, name string) (*artifact, error) {
	list := []lookup{h.store.LookupDebug, h.store.Lookup}
	if h.Containers {
		list = append(list, h.store.LookupContainerDebug, h.store.LookupContainer)
	}
	for _, open := range list {
		a, err := h.whole(id, open)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, buildid.ErrMismatch) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if a.content = sectionOf(a.content, name); a.content != nil {
			a.name += " " + name
			return a, nil
		}
		a.file.Close()
	}
	return nil, fs.ErrNotExist
}

func sectionOf(r *io.SectionReader, name string) *io.SectionReader {
	f, err := elffile.Open(r, r.Size())
	if err != nil {
		return nil
	}
	for _, sec := range f.Sections {
		size := uint64(r.Size())
		if sec.Name == name && sec.Type != elf.SHT_NOBITS && sec.Type != elf.SHT_NULL &&
			sec.Offset <= size && sec.FileSize <= size-sec.Offset {
			return io.NewSectionReader(r, int64(sec.Offset), int64(sec.FileSize))
		}
	}
	return nil
}

// foundFile is one result of a question for metadata, as elfutils 0.192 has it.
type foundFile struct {
	BuildID string `json:"buildid"`
	Type    string `json:"type"`
	File    string `json:"file"`
}

// metadata answers which files there are: ?key=file&value=PATH, or
// key=glob&value=PATTERN, where * does not match a slash.
func (h *Handler) metadata(w http.ResponseWriter, r *http.Request) {
	key, value := r.URL.Query().Get("key"), r.URL.Query().Get("value")
	matches := func(name string) bool { return name == value }
	if key == "glob" {
		matches = func(name string) bool { ok, err := path.Match(value, name); return ok && err == nil }
	} else if key != "file" {
		http.Error(w, "key is file or glob", http.StatusBadRequest)
		return
	}
	list, err := h.store.List()
	if err != nil {
		http.Error(w, "the store cannot be read", http.StatusInternalServerError)
		return
	}
	answer := struct {
		Results  []foundFile `json:"results"`
		Complete bool        `json:"complete"`
	}{[]foundFile{}, true}
	for i := range list {
		e := &list[i]
		for _, name := range e.Files {
			typ := map[string]string{"elf": "executable", "vdso": "executable", "debug": "debuginfo"}[name]
			if typ == "" || e.Orphan || !matches(e.Path) {
				continue
			}
			if len(answer.Results) == maxResults {
				answer.Complete = false
				break
			}
			answer.Results = append(answer.Results, foundFile{e.ID.String(), typ, e.Path})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if b, err := json.Marshal(answer); err == nil {
		w.Write(append(b, '\n')) // a client that left needs no answer
	}
}
