package stage

import "net"

// freePorts returns addresses on loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
