// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestWrap(t *testing.T) {
	err := fmt.Errorf("open ring: %w", Wrap(fs.ErrPermission, "run as root"))
	if !errors.Is(err, fs.ErrPermission) {
		t.Error("the cause is hidden")
	}
	if got, want := err.Error(), "open ring: permission denied"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if got := Of(err); got != "run as root" {
		t.Errorf("hint %q", got)
	}
	if got := Of(Wrap(err, "outer")); got != "outer" {
		t.Errorf("outermost hint is %q", got)
	}
	if Wrap(nil, "x") != nil || Of(fs.ErrPermission) != "" || Of(nil) != "" {
		t.Error("hint out of nothing")
	}
}
