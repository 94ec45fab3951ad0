package program

import "syscall"

// attributes makes a process die with the test that started it, however that dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
