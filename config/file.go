package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// filePath is the allowed tag of a text that is the path of a file, relative to the
// configuration's folder. A Config that was read holds it joined with that folder.
const filePath = "PATH"

// beside returns the path of a file that the configuration names.
func (d *decoder) beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(d.file), name)
}

// refer makes the path in dst one that can be opened, and sees whether it can. An empty
// one stays empty: no file is meant.
func (d *decoder) refer(dst reflect.Value, n *yaml.Node, at where) {
	if n.Value == "" {
		return
	}
	name := d.beside(n.Value)
	dst.SetString(name)
	d.files = append(d.files, name)
	if d.env.SkipSecrets {
		return
	}
	if _, err := d.read(name, maxFile); err != nil {
		d.fail(n, at, "%s: %v", quote(n.Value), err)
	}
}

// read returns the content of a file that is not larger than limit: one content a file,
// however often it is asked for and changes meanwhile. Its errors don't name the file.
func (d *decoder) read(name string, limit Size) ([]byte, error) {
	data, known := d.contents[name]
	var err error
	if !known {
		data, err = d.env.readFile(name)
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the path is in the message already
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the file: %w", err)
	case Size(len(data)) > limit+2: // the line end after a secret is none of it
		return nil, fmt.Errorf("the file is larger than %v", limit)
	}
	d.contents[name] = data
	return data, nil
}

// readBounded reads a file, or a few bytes more than limit of it.
func readBounded(name string, limit Size) ([]byte, error) {
	// To open a named pipe waits for somebody to write to it, for ever and deaf to signals.
	// Those that a shell makes are in /dev and have their writer.
	if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && !strings.HasPrefix(name, "/dev/") {
		return nil, errors.New("a named pipe, not a file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)+3))
}

// certificates finds what is wrong in the files of the TLS sections: a certificate that
// doesn't belong to its key, a file of CAs without any.
func (d *decoder) certificates(c *Config) []finding {
	k := &checker{}
	if d.env.SkipSecrets {
		return nil
	}
	at := path{}.key("tls")
	d.pair(k, at.key("key"), c.TLS.Cert, c.TLS.Key)
	d.authorities(k, at.key("client_ca"), c.TLS.ClientCA)
	for _, m := range c.Models {
		for i, p := range m.Pools {
			at := path{}.key("models").key(m.Name).key("pools").index(i).key("tls")
			d.pair(k, at.key("key"), p.TLS.Cert, p.TLS.Key)
			d.authorities(k, at.key("ca"), p.TLS.CA)
		}
	}
	return k.found
}

// pair finds a certificate and a key that are no pair. One that is missing or can't be
// read has been reported.
func (d *decoder) pair(k *checker, at path, cert, key string) {
	if cert == "" || key == "" {
		return
	}
	chain, err := d.read(cert, maxFile)
	secret, err2 := d.read(key, maxFile)
	if err != nil || err2 != nil {
		return
	}
	if _, err := tls.X509KeyPair(chain, secret); err != nil {
		k.add(at, "cert and key are no pair: %s", strings.TrimPrefix(err.Error(), "tls: "))
	}
}

func (d *decoder) authorities(k *checker, at path, ca string) {
	if ca == "" {
		return
	}
	if data, err := d.read(ca, maxFile); err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		k.add(at, "no certificate in PEM is in the file")
	}
}
