// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestMappedFind(t *testing.T) {
	a, b := ID{raw: "aaaa"}, ID{raw: "bbbb"}
	list := MappedFiles{
		{ID: a, Path: "/app", Major: 1, Minor: 2, Inode: 5, Gen: 1, MountNS: 7},
		{ID: b, Path: "/app", Major: 1, Minor: 2, Inode: 5, Gen: 1, MountNS: 8},
		{ID: a, Path: "/lib", Inode: 6, Gen: 3},
		{ID: b, Path: "/lib", Inode: 6, Gen: 4},
		{Path: "/none", Inode: 9},
		{ID: a, Path: "/life", Inode: 6, MountNS: 7},
		{ID: b, Path: "/life", Inode: 6, Gen: 1 << 32, MountNS: 7},
		{ID: a, Path: "/two", BuildID: ID{raw: "same"}, MountNS: 7},
	}
	for _, tc := range []struct {
		file Mapped
		want ID
	}{
		{Mapped{Path: "/app", Major: 1, Minor: 2, Inode: 5, MountNS: 7}, a},
		{Mapped{Path: "/app", Major: 1, Minor: 2, Inode: 5, Gen: 1, MountNS: 8}, b},
		{Mapped{Path: "/app", Major: 1, Minor: 2, Inode: 5}, ID{}},              // which mount namespace is not known
		{Mapped{Path: "/app", Major: 1, Minor: 2, Inode: 5, MountNS: 9}, ID{}},  // another one
		{Mapped{Path: "/app", Major: 1, Minor: 3, Inode: 5, MountNS: 7}, ID{}},  // another device
		{Mapped{Path: "/app2", Major: 1, Minor: 2, Inode: 5, MountNS: 7}, ID{}}, // another path
		{Mapped{Path: "/lib", Inode: 6, Gen: 3, MountNS: 7}, a},
		{Mapped{Path: "/lib", Inode: 6}, ID{}}, // one took the place of the other
		{Mapped{Path: "/none", Inode: 9}, ID{}},
		{Mapped{Path: "/life", Inode: 6, Gen: 5, MountNS: 7}, a},
		{Mapped{Path: "/life", Inode: 6, Gen: 1<<32 | 5, MountNS: 7}, b},
		{Mapped{Path: "/life", Inode: 6, Gen: 2<<32 | 5, MountNS: 7}, ID{}}, // not kept
		{Mapped{Path: "/two", BuildID: ID{raw: "same"}, MountNS: 7}, a},
		{Mapped{Path: "/two", BuildID: ID{raw: "same"}, MountNS: 8}, ID{}},
		{Mapped{Path: "/two", BuildID: ID{raw: "other"}, MountNS: 7}, ID{}},
		{Mapped{Path: "/two", MountNS: 7}, ID{}},
	} {
		if id, ok := list.Find(&tc.file); id != tc.want || ok != !tc.want.IsZero() {
			t.Errorf("%+v: %v, %v, want %v", tc.file, id, ok, tc.want)
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var got MappedFiles
	if err := json.Unmarshal(text, &got); err != nil || !slices.Equal(got, list) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"{}", "[{]", `[{"id":"zz"}]`, "[" + strings.Repeat("{},", MaxMapped) + "{}]"} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%.20s is taken", bad)
		}
	}
}
