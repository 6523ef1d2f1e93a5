// SPDX-License-Identifier: Apache-2.0

package container_test

import (
	"fmt"

	"github.com/gantry-tools/gantry/container"
)

// What --image nginx -l 'tier!=test' selects.
func ExampleMatcher() {
	labels, err := container.ParseLabels("tier!=test")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := container.Matcher{Images: []string{"nginx"}, Labels: labels}
	found, err := m.Select([]*container.Container{
		{Kind: container.KindContainer, Name: "web", Image: "docker.io/library/nginx:1.27"},
		{Kind: container.KindContainer, Name: "try", Image: "nginx", Labels: map[string]string{"tier": "test"}},
		{Kind: container.KindContainer, Name: "db", Image: "postgres:16"},
	})
	for _, c := range found {
		fmt.Println(c.Name)
	}
	fmt.Println(m.String(), err)
	// Output:
	// web
	// --image nginx -l tier!=test <nil>
}

// A definition of what a container is, and selectors of what it finds.
func ExampleDefinitions_ParseChoice() {
	vm, err := container.ParseDefinition("vm=uts,pid")
	if err != nil {
		fmt.Println(err)
		return
	}
	defs := append(container.BuiltIn(), vm)
	for _, text := range []string{"web-*", "vm:any", "pod:web", "vm:uts:4026532252,pid:4026532254", "net:any"} {
		c, err := defs.ParseChoice(text)
		fmt.Println(c.Text, c.Any, c.ByName(), err != nil)
	}
	// Output:
	// web-* false true false
	// vm:any true false false
	// pod:web false true false
	// vm:uts:4026532252,pid:4026532254 false false false
	// net:any false false true
}
