// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// slowTold is a source that tells what it has, after its time.
type slowSource struct {
	list []Info
	err  error
	hang bool
	took *[]time.Duration // the time it was given
}

func (s slowSource) Name() string { return "slow" }

func (s slowSource) Containers(ctx context.Context) ([]Info, error) {
	if end, ok := ctx.Deadline(); ok && s.took != nil {
		*s.took = append(*s.took, time.Until(end))
	}
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.list, s.err
}

// TestUserCannotRename: a user makes a cgroup with the id of another's container
// and tells a name for it.
func TestUserCannotRename(t *testing.T) {
	const slice = "/user.slice/user-1000.slice/x"
	for _, victim := range []string{"/system.slice", "/z.slice"} { // found before the user's, or after
		f := newFixture(t, "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
		f.cgroup("/sys/fs/cgroup"+victim+"/docker-"+hexA+".scope", "")
		f.cgroup("/sys/fs/cgroup"+slice+"/docker-"+hexA+".scope", "")
		evil := slowSource{list: []Info{{Container: Container{ID: hexA, Name: "evil", Image: "evil", Pod: "evil",
			Labels: map[string]string{"k": "v"}}, Owner: 1000}}}
		r, err := NewResolver(&ResolverOptions{Root: f.root, Sources: []Source{evil}})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.Refresh(context.Background()); w != nil {
			t.Error(w)
		}
		named := map[string]string{}
		for _, c := range r.Table().Containers() {
			named[c.CgroupPath] = c.Name
			if c.Name == "" && (c.Image != "" || c.Pod != "" || c.Labels != nil) {
				t.Errorf("%+v", c)
			}
		}
		if len(named) != 2 || named[victim+"/docker-"+hexA+".scope"] != "" ||
			named[slice+"/docker-"+hexA+".scope"] != "evil" {
			t.Errorf("%q", named)
		}
	}
}

// TestUsersShareTheirTime: sources that users let hang do not add up.
func TestUsersShareTheirTime(t *testing.T) {
	f := newFixture(t, "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.cgroup("/sys/fs/cgroup/a", "")
	var given []time.Duration
	slow := userSource{slowSource{hang: true, took: &given}}
	r, err := NewResolver(&ResolverOptions{Root: f.root, Timeout: 200 * time.Millisecond,
		Sources: []Source{slow, slow, slow, slowSource{took: &given}}})
	if err != nil {
		t.Fatal(err)
	}
	if w := r.Refresh(context.Background()); len(w) != 3 || !errors.Is(w[2], context.DeadlineExceeded) {
		t.Error(w)
	}
	if len(given) != 4 || given[1] > 0 || given[2] > 0 || given[3] <= 0 {
		t.Errorf("%v", given)
	}
}

// TestTableBounds: what users do while a recording runs cannot make its table
// one that no reader takes.
func TestTableBounds(t *testing.T) {
	var tab Table
	for i := range 3 * maxSourceLabels * 10 {
		tab.Add(Container{ID: hexA, CgroupID: 5, Labels: map[string]string{fmt.Sprintf("%05d", i): "v"}})
	}
	tab.AddCgroup(6, "/"+strings.Repeat("x", maxText))
	if !tab.Full || tab.Path(6) != "" {
		t.Error("a path that no file may have is taken")
	}
	for i := range maxContainers + 10 {
		tab.AddCgroup(CgroupID(100+i), fmt.Sprintf("/docker/%064x", i))
	}
	b, err := json.Marshal(&tab)
	if err != nil {
		t.Fatal(err)
	}
	var back Table
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if n := len(back.Containers()); n != maxContainers || !back.Full || len(back.Containers()[0].Labels) != maxLabels {
		t.Errorf("%d containers, full %v", n, back.Full)
	}
}

// TestTableOrder: containers of one cgroup are found by their time, in whatever
// order a file has them.
func TestTableOrder(t *testing.T) {
	var tab Table
	if err := json.Unmarshal([]byte(`{"version":1,"containers":[{"id":"c","cgroup":1,"start_time":30},{"id":"a","cgroup":1,"start_time":10},{"id":"b","cgroup":1,"start_time":20}]}`), &tab); err != nil {
		t.Fatal(err)
	}
	for time, want := range map[uint64]string{5: "a", 15: "a", 20: "b", 29: "b", 31: "c"} {
		if c := tab.ByCgroupAt(1, time); c.ID != want {
			t.Errorf("at %d: %s, want %s", time, c.ID, want)
		}
	}
	if tab.Containers()[0].ID != "c" {
		t.Error("the order of the file is lost")
	}
}

func TestJoinFew(t *testing.T) {
	var errs []error
	for i := range 1000 {
		errs = append(errs, fmt.Errorf("error %d", i))
	}
	if err := joinFew(errs); !errors.Is(err, errs[7]) || errors.Is(err, errs[8]) ||
		!strings.HasSuffix(err.Error(), "and 992 more") {
		t.Error(err)
	}
	if err := joinFew(slices.Clone(errs[:8])); strings.Contains(err.Error(), "more") {
		t.Error(err)
	}
	if err := joinFew(nil); err != nil {
		t.Error(err)
	}
}
