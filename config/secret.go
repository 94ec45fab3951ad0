package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Secret is a value that is never shown: however it is printed, encoded or logged, it
// is [secret]. The zero Secret is none, and prints as nothing. Only Reveal gives the
// value away.
type Secret struct {
	// Behind two pointers: fmt prints what it reaches through somebody's unexported
	// field without asking for methods, and with a wrong verb it follows one pointer.
	held *held
}

type held struct{ value *string }

const shownSecret = "[secret]"

// NewSecret returns a secret of the given value.
func NewSecret(value string) Secret { return Secret{&held{&value}} }

// Reveal returns the value, "" when there is none.
func (s Secret) Reveal() string {
	if s.held == nil {
		return ""
	}
	return *s.held.value
}

// IsSet tells whether the configuration names a secret here, resolved or not.
func (s Secret) IsSet() bool { return s.held != nil }

// String returns [secret], or "" where there is none.
func (s Secret) String() string {
	if s.held == nil {
		return ""
	}
	return shownSecret
}

// GoString returns what String does.
func (s Secret) GoString() string { return s.String() }

// Format writes what String returns, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns what String does.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var _ interface {
	fmt.Stringer
	fmt.GoStringer
	fmt.Formatter
	slog.LogValuer
} = Secret{}

// maxSecret bounds a secret in bytes; a header of an HTTP call must carry it.
const maxSecret = 16 * KiB

const secretForms = "expected env:NAME or file:PATH; the value is not shown"

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s *Secret) decode(d *decoder, n *yaml.Node, at where) {
	kind, name, _ := strings.Cut(n.Value, ":")
	*s = NewSecret("") // whatever is wrong with it, one is meant
	known := kind == "env" && envName.MatchString(name) || kind == "file" && name != ""
	if n.Kind != yaml.ScalarNode || n.Tag != strTag || !known {
		d.fail(n, at, "%s", secretForms)
		return
	}
	if kind == "file" {
		name = d.beside(name)
		d.files = append(d.files, name)
	}
	if d.env.SkipSecrets {
		return
	}
	value, err := d.resolve(kind, name)
	if err != nil {
		d.fail(n, at, "%s: %v", quote(n.Value), err)
		return
	}
	*s = NewSecret(value)
}

// resolve returns the value of the secret that kind and name say. Its errors hold
// nothing of the value.
func (d *decoder) resolve(kind, name string) (string, error) {
	var value string
	if kind == "env" {
		value = d.env.getenv(name)
		if value == "" {
			return "", errors.New("the environment variable is not set or is empty")
		}
	} else {
		data, err := d.read(name, maxSecret)
		if err != nil {
			return "", err
		}
		if value = strings.TrimRight(string(data), "\r\n"); value == "" {
			return "", errors.New("the file is empty")
		}
	}
	if Size(len(value)) > maxSecret {
		return "", fmt.Errorf("the value is longer than %v", maxSecret)
	}
	// RFC 6750 section 2.1: a bearer token is visible ASCII.
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the value has spaces or characters that no header carries")
	}
	return value, nil
}
