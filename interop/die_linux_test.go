//go:build interop

package interop

import "syscall"

// dieWithParent has the kernel kill a process whose test was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
