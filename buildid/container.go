// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// containersDir has links to files of containers by the GNU build-ids that they
// claim, in perf's layout: for who chooses to believe them, and nobody else. A
// build-id is a text that anybody can give a file, also that of a binary of the
// host.
const containersDir = "containers"

// conflict is where the link of a build-id leads that two contents claim.
const conflict = "conflict"

func containerLink(id ID) string { return path.Join(containersDir, linkOf(id)) }

// AddContainer copies an ELF file of a container into the store, by its content,
// unless it is there. It returns that id, and whether it was added. src.Want is the GNU build-id that the
// file must have, if it is not zero; LookupContainer finds it by that, as long as
// no other content claims the same.
func (s *Store) AddContainer(f *os.File, size int64, src Source) (content ID, added bool, err error) {
	if content, added, err = s.addContent(f, size, src); err != nil {
		return ID{}, false, fmt.Errorf("add %s to build-id store: %w", src.Path, err)
	}
	if src.Want.Kind() == KindGNU && src.Want.Len() >= minSize {
		err = s.linkContainer(src.Want, content)
	}
	return content, added, err
}

func (s *Store) addContent(f *os.File, size int64, src Source) (content ID, added bool, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return ID{}, false, err
	}
	// The copy is what is checked and hashed, once: the file may change meanwhile.
	temp, err := s.copyTemp(&io.LimitedReader{R: f, N: size}, src.Limit)
	if err != nil {
		return ID{}, false, err
	}
	defer temp.close(s) // removes what was not put in place
	content, err = s.checkFile(temp.name, Source{Want: src.Want, Content: true})
	if err != nil {
		return ID{}, false, err
	}
	// Whether what is there is whole is found out when it is opened.
	if _, err := s.root.Stat(path.Join(linkOf(content), elfFileName)); err == nil {
		s.touch(content)
		return content, false, nil
	}
	return content, true, s.place(temp.name, content, src.Path, elfFileName)
}

// linkContainer makes the link of a build-id to a content, or to nothing if
// another content has it.
func (s *Store) linkContainer(id, content ID) error {
	defer s.lock(shared)()
	link, target := containerLink(id), path.Join("../../..", linkOf(content))
	if err := s.root.MkdirAll(path.Dir(link), 0o755); err != nil {
		return err
	}
	old, err := s.root.Readlink(link)
	switch {
	case err != nil:
	case old == target || old == conflict:
		return nil
	default:
		if _, err := s.root.Stat(link); err == nil { // else the other one was removed
			target = conflict
		}
		if err := s.root.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.root.Symlink(target, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // else another writer was faster
	}
	return nil
}

// LookupContainer opens the file of a container with a GNU build-id. Whether the
// file that others mean by that id is the same, nothing tells. The caller closes
// it. The error is fs.ErrNotExist if there is none, or more than one.
func (s *Store) LookupContainer(id ID) (f *os.File, size int64, err error) {
	return s.lookupContainer(id, elfFileName)
}

// LookupContainerDebug opens its separate symbols.
func (s *Store) LookupContainerDebug(id ID) (f *os.File, size int64, err error) {
	return s.lookupContainer(id, debugName)
}

func (s *Store) lookupContainer(id ID, name string) (f *os.File, size int64, err error) {
	if id.Len() < minSize {
		return nil, 0, fmt.Errorf("look up build-id %q: %w", id, fs.ErrNotExist)
	}
	f, size, err = s.openFile(path.Join(containerLink(id), name))
	if err == nil {
		if err = Check(f, size, id); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look up build-id %s of containers: %w", id, err)
	}
	return f, size, nil
}

// AddContainerDebug copies the separate symbols of a file that AddContainer has
// added. src.Want is the build-id of both.
func (s *Store) AddContainerDebug(content ID, r io.Reader, src Source) error {
	err := s.addContentDebug(content, r, src)
	if err != nil {
		err = fmt.Errorf("add symbols %s to build-id store: %w", src.Path, err)
	}
	return err
}

func (s *Store) addContentDebug(content ID, r io.Reader, src Source) error {
	if content.Kind() != KindContent || src.Want.IsZero() {
		return ErrNoID
	}
	temp, err := s.copyTemp(r, src.Limit)
	if err != nil {
		return err
	}
	defer temp.close(s) // removes what was not put in place
	if _, err := s.checkFile(temp.name, src); err != nil {
		return err
	}
	return s.place(temp.name, content, src.Path, debugName)
}

// checkDebug reports whether a file is of symbols for the binary with an id. One
// that is known by its content has them by the build-id that both have.
func (s *Store) checkDebug(f *os.File, size int64, id ID) error {
	if id.Kind() != KindContent {
		return Check(f, size, id)
	}
	binary, length, err := s.openFile(path.Join(linkOf(id), elfFileName))
	if err != nil {
		return err
	}
	defer binary.Close()
	gnu, err := FromFile(binary, length)
	if err != nil {
		return err
	}
	return Check(f, size, gnu)
}
