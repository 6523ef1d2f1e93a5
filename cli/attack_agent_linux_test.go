// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// abuseSocket keeps as many connections to the agent as it gets, and says what is none of
// its words on others, until its input ends.
func abuseSocket([]string) error {
	addr := &net.UnixAddr{Name: client.Socket(), Net: "unixpacket"}
	var held []*net.UnixConn
	for range 600 {
		conn, err := net.DialUnix("unixpacket", nil, addr)
		if err != nil {
			break // the agent takes no more
		}
		defer conn.Close()
		held = append(held, conn)
	}
	if len(held) < 20 {
		return fmt.Errorf("%d connections only", len(held))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	words := [][]byte{{}, {1}, make([]byte, 16), make([]byte, 4000), make([]byte, 100_000),
		(&client.Request{Kind: 77}).Append(nil), (&client.Request{Kind: client.KindOpen, PID: -5}).Append(nil)}
	for i, conn := range held {
		_, _, _ = conn.WriteMsgUnix(words[i%len(words)], syscall.UnixRights(int(r.Fd())), nil)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	return nil
}

// holdMemory opens an event by an attr that is in a file whose server does not answer
// any more, once its input has a line.
func holdMemory(args []string) error {
	f, err := sys.Open(args[0], os.O_RDONLY)
	if err != nil {
		return err
	}
	page, err := sys.Mmap(f, sys.PageSize(), false)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadByte(); err != nil {
		return err
	}
	fmt.Println("opening")
	_, _, errno := syscall.Syscall6(sys.SysPerfEventOpen, uintptr(unsafe.Pointer(unsafe.SliceData(page.Bytes()))),
		^uintptr(0), 0, ^uintptr(0), 0, 0)
	if errno == 0 {
		return errors.New("an attr that cannot be read: granted")
	}
	return nil
}

// hideCapability gives CAP_SYS_PTRACE up, for good, when another process has it still,
// and waits until its input ends.
func hideCapability([]string) error {
	keeper := exec.Command("/bin/cat")
	in, err := keeper.StdinPipe()
	if err != nil {
		return err
	}
	if err := keeper.Start(); err != nil {
		return err
	}
	const dropBounding, sysPtrace = 24, 19
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, dropBounding, sysPtrace, 0); errno != 0 {
		return errno
	}
	var head struct {
		version uint32
		pid     int32
	}
	var sets [2]struct{ effective, permitted, inheritable uint32 }
	head.version = 0x20080522
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return errno
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	in.Close()
	return keeper.Wait()
}
