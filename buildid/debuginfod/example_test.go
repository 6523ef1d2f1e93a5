// SPDX-License-Identifier: Apache-2.0

package debuginfod_test

import (
	"fmt"
	"net/http/httptest"
	"os"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/buildid/debuginfod"
)

// A store serves its files to gdb and to other machines.
func ExampleNewHandler() {
	dir, err := os.MkdirTemp("", "gantry-example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := buildid.CreateStore(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	server := httptest.NewServer(debuginfod.NewHandler(store))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/buildid/b5e9f2d8b1eae55c2f1ba82f88fc617d3d475ad9/executable")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 404 Not Found
}
