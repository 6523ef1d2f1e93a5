// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import (
	"context"
	"errors"
	"io"

	"github.com/gantry-tools/gantry/internal/hint"
)

func containerOpener(context.Context, io.Writer, string) (closableOpener, error) {
	return nil, hint.Wrap(errors.New("containers run on Linux only"),
		"add the file on the machine where the container runs")
}
