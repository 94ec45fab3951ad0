package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"kvasir/config"
)

const configUsage = `usage: kvasir config check [-no-secrets] FILE
       kvasir config example
       kvasir config schema

check prints every problem of a configuration file with its position.
example prints a full commented configuration file.
schema prints the format as JSON Schema, for editors that complete and check.

flags of check:
  -no-secrets   check the form of secrets and of paths, but read none of them

example:
  kvasir config example > kvasir.yaml
  kvasir config check kvasir.yaml
  kvasir config schema > kvasir.schema.json
`

// runConfig is kvasir config: it checks a file, or prints an example or the schema.
func runConfig(_ context.Context, env environment, args []string) int {
	flags := flag.NewFlagSet("kvasir config", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	noSecrets := flags.Bool("no-secrets", false, "")
	words, err := parseAnywhere(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, configUsage)
		return 0
	case err != nil:
		return misuse(env, err.Error())
	case len(words) == 1 && words[0] == "example" && flags.NFlag() == 0:
		fmt.Fprint(env.stdout, config.Example())
		return 0
	case len(words) == 1 && words[0] == "schema" && flags.NFlag() == 0:
		fmt.Fprint(env.stdout, config.Schema())
		return 0
	case len(words) == 2 && words[0] == "check":
		return checkConfig(env, words[1], *noSecrets)
	case len(words) == 0:
		return misuse(env, "expected check, example or schema")
	case words[0] == "check":
		return misuse(env, "check takes one FILE")
	case words[0] == "example" || words[0] == "schema":
		return misuse(env, words[0]+" takes nothing further")
	}
	return misuse(env, fmt.Sprintf("no such command: %q", words[0]))
}

func misuse(env environment, message string) int {
	fmt.Fprintf(env.stderr, "kvasir config: %s\n\n%s", message, configUsage)
	return 2
}

// parseAnywhere parses flags that stand before, among or after the other words, and
// returns those.
func parseAnywhere(flags *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return words, nil
		}
		words = append(words, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func checkConfig(env environment, file string, noSecrets bool) int {
	c, err := config.Load(file, config.Env{Getenv: env.getenv, SkipSecrets: noSecrets})
	if problems, ok := errors.AsType[config.Problems](err); ok {
		fmt.Fprintln(env.stdout, problems)
		fmt.Fprintf(env.stderr, "kvasir config: %s in %s\n", count(len(problems), "problem"), file)
		return 1
	}
	if err != nil {
		fmt.Fprintln(env.stderr, "kvasir config:", err)
		return 1
	}
	pools, endpoints, discovering := 0, 0, 0
	for _, m := range c.Models {
		pools += len(m.Pools)
		for _, p := range m.Pools {
			endpoints += len(p.Endpoints)
			if p.Discover.IsSet() {
				discovering++
			}
		}
	}
	found := ""
	if discovering > 0 {
		found = fmt.Sprintf(", %s with discovery", count(discovering, "pool"))
	}
	fmt.Fprintf(env.stdout, "%s: ok: %s, %s, %s%s\n", file,
		count(len(c.Models), "model"), count(pools, "pool"), count(endpoints, "endpoint"), found)
	return 0
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
