// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxHeaders bounds a file of headers, in bytes.
const maxHeaders = 64 << 10

// FromEnv reads what the environment says to debuginfod clients:
// DEBUGINFOD_URLS, _TIMEOUT and _MAXTIME (seconds), _MAXSIZE (bytes) and
// _HEADERS_FILE (lines of NAME: VALUE). That there are URLs asks for nothing by
// itself: distributions set them for everybody.
func FromEnv(getenv func(string) string) (Options, error) {
	var o Options
	for _, u := range strings.Fields(getenv("DEBUGINFOD_URLS")) {
		if !strings.HasPrefix(u, "ima:") { // how far signatures count, of elfutils 0.192
			o.URLs = append(o.URLs, u)
		}
	}
	var timeout, maxTime int64
	for name, to := range map[string]*int64{"DEBUGINFOD_TIMEOUT": &timeout, "DEBUGINFOD_MAXTIME": &maxTime,
		"DEBUGINFOD_MAXSIZE": &o.MaxSize} {
		text := getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || name != "DEBUGINFOD_MAXSIZE" && n > int64(maxSeconds) {
			return o, fmt.Errorf("%s is %q, not a number", name, text)
		}
		*to = n
	}
	o.Timeout, o.MaxTime = time.Duration(timeout)*time.Second, time.Duration(maxTime)*time.Second
	if name := getenv("DEBUGINFOD_HEADERS_FILE"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			return o, fmt.Errorf("DEBUGINFOD_HEADERS_FILE: %w", err)
		}
		defer f.Close()
		if o.Header, err = readHeaders(f); err != nil {
			return o, fmt.Errorf("DEBUGINFOD_HEADERS_FILE: %s: %w", name, err)
		}
	}
	return o, nil
}

// maxSeconds is more than anybody waits.
const maxSeconds = 365 * 24 * 3600

// readHeaders reads lines of NAME: VALUE.
func readHeaders(r io.Reader) (http.Header, error) {
	h := make(http.Header)
	sc := bufio.NewScanner(io.LimitReader(r, maxHeaders))
	for line := 1; sc.Scan(); line++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" {
			continue
		}
		name, value, ok := strings.Cut(text, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("line %d is not NAME: VALUE", line)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	if err := sc.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("a line is too long: %w", err)
	}
	return h, nil
}
