// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestFromEnv(t *testing.T) {
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("X-One: 1\n\nX-Two:  two: 2 \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"DEBUGINFOD_URLS": " https://a/  ima:enforcing http://b:8002", "DEBUGINFOD_TIMEOUT": "7", "DEBUGINFOD_MAXTIME": "60",
		"DEBUGINFOD_MAXSIZE": "1000", "DEBUGINFOD_HEADERS_FILE": headers,
	}
	get := func(name string) string { return env[name] }
	o, err := FromEnv(get)
	if err != nil || !slices.Equal(o.URLs, []string{"https://a/", "http://b:8002"}) || o.Timeout != 7*time.Second ||
		o.MaxTime != time.Minute || o.MaxSize != 1000 || o.Header.Get("X-One") != "1" || o.Header.Get("x-two") != "two: 2" {
		t.Errorf("%+v, %v", o, err)
	}
	for name, bad := range map[string][]string{
		"DEBUGINFOD_TIMEOUT": {"x", "-1", "99999999999"}, "DEBUGINFOD_MAXSIZE": {"1G"}, "DEBUGINFOD_HEADERS_FILE": {"/no/such", os.Args[0]},
	} {
		for _, value := range bad {
			good := env[name]
			env[name] = value
			if _, err := FromEnv(get); err == nil {
				t.Errorf("%s=%s is taken", name, value)
			}
			env[name] = good
		}
	}
	clear(env)
	if o, err := FromEnv(get); err != nil || len(o.URLs) != 0 {
		t.Errorf("nothing is set: %+v, %v", o, err)
	}
}

func TestDefaultCache(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	check := func(want string) {
		t.Helper()
		if got, err := DefaultCache(func(name string) string { return env[name] }); got != want || (err == nil) != (want != "") {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	check(home + "/.cache/debuginfod_client")
	env["XDG_CACHE_HOME"] = "/xdg"
	check("/xdg/debuginfod_client")
	if err := os.Mkdir(home+"/.debuginfod_client_cache", 0o700); err != nil {
		t.Fatal(err)
	}
	check(home + "/.debuginfod_client_cache")
	env["DEBUGINFOD_CACHE_PATH"] = "/cache"
	check("/cache")
	clear(env)
	check("")
}

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "localhost", "ftp://a/", "file:///usr", "http://", "http://[::1", "://"} {
		if c, err := New(Options{URLs: []string{url}, Cache: t.TempDir()}); err == nil {
			c.Close()
			t.Errorf("%q is taken", url)
		}
	}
}
