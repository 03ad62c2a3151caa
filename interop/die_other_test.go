//go:build interop && !linux

package interop

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
