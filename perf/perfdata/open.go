// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"os"
)

// Open reads the file at path; "-" is the standard input. [Reader.Close] closes
// it.
func Open(path string, o *ReaderOptions) (_ *Reader, err error) {
	f := os.Stdin
	if path != "-" {
		if f, err = os.Open(path); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil && f != os.Stdin {
			f.Close()
		}
	}()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var r *Reader
	switch {
	case st.IsDir():
		return nil, fmt.Errorf("%s: %w: a directory; give the data file in it", path, ErrUnsupported)
	case st.Mode().IsRegular():
		r, err = NewReader(f, st.Size(), o)
	default:
		r, err = NewPipeReader(f, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f != os.Stdin {
		r.closer = f
	}
	return r, nil
}
