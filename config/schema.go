package config

import _ "embed"

//go:embed schema.json
var schema string

// Schema returns a JSON Schema (draft 2020-12) of the file's format, for editors. It
// follows the same tags and comments as the reader; a test keeps it so. The rules between
// keys, and what is wrong in a file that the configuration names, only the reader knows.
func Schema() string { return schema }
