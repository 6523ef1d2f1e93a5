// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plainFlagErrors makes the errors of a command's flags say what is wrong with
// a value in place of how Go reads numbers.
func plainFlagErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			f := bad.GetFlag()
			switch f.Value.Type() {
			case "int", "float64":
				err = fmt.Errorf("--%s %q is not a number", f.Name, bad.GetValue())
			case "bool":
				err = fmt.Errorf("--%s takes no value, but there is %q", f.Name, bad.GetValue())
			}
		}
		return usageError(cmd, err)
	})
}

// notNegative refuses what no count can be.
func notNegative(flag string, n int) error {
	if n < 0 {
		return fmt.Errorf("%s %d is less than nothing", flag, n)
	}
	return nil
}

func parseIDs(flag string, list []string) ([]int32, error) {
	var out []int32
	for _, s := range list {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%s %q is not a number of a process or thread", flag, s)
		}
		out = append(out, int32(n))
	}
	return out, nil
}

// maxCPU bounds a list of cpus.
const maxCPU = 1 << 16

// parseCPUList reads a list of cpus and ranges as the kernel writes it.
func parseCPUList(s string) ([]int32, error) {
	if s == "" {
		return nil, nil
	}
	var out []int32
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.ParseUint(lo, 10, 16)
		b, err2 := strconv.ParseUint(hi, 10, 16)
		if err1 != nil || err2 != nil || b < a || len(out)+int(b-a) > maxCPU {
			return nil, fmt.Errorf("cpu list %q: %q is neither a cpu nor a range", s, part)
		}
		for n := a; n <= b; n++ {
			out = append(out, int32(n))
		}
	}
	return out, nil
}

// complete makes the shell offer words for the value of a flag; for a list,
// for its last part.
func complete(cmd *cobra.Command, flag string, list bool, words []string) {
	err := cmd.RegisterFlagCompletionFunc(flag,
		func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			const directive = cobra.ShellCompDirectiveNoFileComp
			before, last := "", typed
			if i := strings.LastIndexByte(typed, ','); list && i >= 0 {
				before, last = typed[:i+1], typed[i+1:]
			}
			var out []string
			for _, w := range words {
				if strings.HasPrefix(w, last) && !strings.Contains(","+before, ","+w+",") {
					out = append(out, before+w)
				}
			}
			if list {
				return out, directive | cobra.ShellCompDirectiveNoSpace
			}
			return out, directive
		})
	if err != nil { // a flag that is not there, or was completed already
		panic(err)
	}
}
