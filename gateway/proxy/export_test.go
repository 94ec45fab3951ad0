package proxy

// IsCall reports whether calls come in by the path.
func IsCall(path string) bool { return byPath[path] != nil }
