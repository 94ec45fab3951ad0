package program

import (
	"fmt"
	"syscall"
)

// RaiseFiles raises this process's bound on open files to want, or as near to it as the
// system lets it, and returns the bound. Processes started afterwards inherit it.
func RaiseFiles(want uint64) (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read RLIMIT_NOFILE: %w", err)
	}
	if l.Cur >= want {
		return l.Cur, nil
	}
	more := syscall.Rlimit{Cur: want, Max: max(l.Max, want)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) == nil { // needs privilege above the hard bound
		return want, nil
	}
	l.Cur = min(want, l.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("raise RLIMIT_NOFILE to %d: %w", l.Cur, err)
	}
	return l.Cur, nil
}
