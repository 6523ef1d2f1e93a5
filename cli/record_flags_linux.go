// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// checkGiven refuses flags that are given and say nothing: an empty target,
// such as a variable of a script that is not set, must not become the whole
// machine.
func checkGiven(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(fl *pflag.Flag) {
		values := []string{fl.Value.String()}
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if err == nil && slices.Contains(values, "") {
			err = fmt.Errorf("--%s is empty", fl.Name)
		}
	})
	return err
}

// countValue is a number of events, at least one.
type countValue uint64

func (v *countValue) String() string { return strconv.FormatUint(uint64(*v), 10) }
func (v *countValue) Type() string   { return "count" }

func (v *countValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 {
		return errors.New("write a number of events from 1 on")
	}
	*v = countValue(n)
	return nil
}

// timeValue is a time that is longer than nothing.
type timeValue time.Duration

func (v *timeValue) Type() string { return "time" }

// String is "0" for none, which the help leaves out.
func (v *timeValue) String() string {
	if *v == 0 {
		return "0"
	}
	return time.Duration(*v).String()
}

func (v *timeValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errors.New("write a time above 0 with its unit, such as 5s or 2m")
	}
	*v = timeValue(d)
	return nil
}

// levelValue is a level of zstd. It calls itself a bool, for then the help
// shows that a value comes after "=" only.
type levelValue int

func (v *levelValue) String() string { return strconv.Itoa(int(*v)) }
func (v *levelValue) Type() string   { return "bool" }

const maxLevel = 22

func (v *levelValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxLevel {
		return fmt.Errorf("write a level of 1 to %d, such as -z=3", maxLevel)
	}
	*v = levelValue(n)
	return nil
}
