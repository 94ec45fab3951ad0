// Package kvasir holds the source of what the page explains: the policies, scorers and labs
// that are compiled in, so that whoever reads of a rule can read the rule.
package kvasir

import "embed"

// Source has the files by their path in the repository, tests among them.
//
//go:embed selection/policy/*.go selection/scorer/*.go lab/*.go
var Source embed.FS
