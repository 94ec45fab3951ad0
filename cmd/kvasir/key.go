package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"kvasir/config"
)

const keyUsage = `usage: kvasir key [-name NAME]
       kvasir key -hash < FILE

Prints a new random key, and below it the line that lets its owner in: for clients.keys
of the configuration, or for its clients.keys_file. The key itself is stored nowhere;
hand it over, clients send it as bearer token or x-api-key.

flags:
  -name NAME   the name in that line (client)
  -hash        print the SHA-256 of the key on the first line of standard input instead

example:
  kvasir key -name search-team
  kvasir key -hash < key.txt
`

// keyPrefix tells people and scanners of leaked secrets what a key is for.
const keyPrefix = "kv_"

// runKey is kvasir key: it makes a client's key, or hashes one.
func runKey(_ context.Context, env environment, args []string) int {
	return keyFrom(os.Stdin, env, args)
}

func keyFrom(stdin io.Reader, env environment, args []string) int {
	flags := flag.NewFlagSet("kvasir key", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("name", "client", "")
	hash := flags.Bool("hash", false, "")
	err := flags.Parse(args)
	named := false
	flags.Visit(func(f *flag.Flag) { named = named || f.Name == "name" })
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, keyUsage)
		return 0
	case err == nil && flags.NArg() > 0:
		err = errors.New("expected flags alone; a key on the command line is seen by everybody on the machine")
	case err == nil && *hash && named:
		err = errors.New("-name and -hash exclude each other")
	case err == nil && !isPlainLabel(*name):
		err = errors.New("a name is 1 to 128 letters, digits, dots, hyphens and underscores")
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir key: %v\n\n%s", err, keyUsage)
		return 2
	}
	if *hash {
		return hashKey(stdin, env)
	}
	key := newKey()
	fmt.Fprintf(env.stdout, "%s\n- {name: %q, sha256: %q}\n", key, *name, config.HashKey(key).Hex())
	return 0
}

// newKey returns a key of 32 random bytes, in characters that headers and shells leave
// alone.
func newKey() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails, the package says
	return keyPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// maxKey bounds a key in bytes; a header carries it.
const maxKey = 16 << 10

// hashKey prints the hash of the key on the first line of stdin: what kvasir key has written
// to a file has another one.
func hashKey(stdin io.Reader, env environment) int {
	data, err := io.ReadAll(io.LimitReader(stdin, maxKey+3))
	key, _, _ := strings.Cut(string(data), "\n")
	key = strings.TrimSuffix(key, "\r")
	switch {
	case err != nil:
		err = fmt.Errorf("cannot read the key: %w", err)
	case key == "":
		err = errors.New("no key is on standard input")
	case len(key) > maxKey:
		err = fmt.Errorf("the key is longer than %d bytes", maxKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		err = errors.New("the key has spaces or characters that no header carries")
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir key: %v\n", err)
		return 1
	}
	fmt.Fprintln(env.stdout, config.HashKey(key).Hex())
	return 0
}

// isPlainLabel tells whether a name stands in the file as it is, whatever is around it.
func isPlainLabel(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
