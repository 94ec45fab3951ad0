package trace

import (
	"fmt"
	"time"
)

// azureFormat reads Azure's LLM inference traces (Azure/AzurePublicDataset): CSV with
// TIMESTAMP, ContextTokens and GeneratedTokens, one call a line, nothing of prefixes. The
// trace of 2023 (Patel et al., "Splitwise", ISCA 2024) has stamps like 2023-11-16
// 18:17:03.9799600; that of 2024 (Stojkovic et al., "DynamoLLM", 2024) like 2024-05-12
// 00:00:00.001163+00:00, or without a fraction.
func azureFormat() format {
	wanted := []string{"timestamp", "contexttokens", "generatedtokens"}
	return format{
		name: Azure, about: "CSV with TIMESTAMP,ContextTokens,GeneratedTokens: Azure 2023 and 2024",
		detect: isHeader(wanted...),
		rows: func(*settings) parseRows {
			var t table
			return func(line []byte, emit func(*row) bool) error {
				if header, err := t.header(line, wanted...); header || err != nil {
					return err
				}
				if err := t.read(line); err != nil {
					return err
				}
				at, err := wallClock(t.field("timestamp"))
				if err != nil {
					return err
				}
				r := &row{at: at, timed: true}
				if err := t.tokens(r, "contexttokens", "generatedtokens"); err != nil {
					return err
				}
				emit(r)
				return nil
			}
		},
	}
}

// tokens fills in the lengths of prompt and answer.
func (t *table) tokens(r *row, prompt, output string) error {
	n, err := wholeNumber(prompt, t.field(prompt), 1, maxTokens)
	if err != nil {
		return err
	}
	m, err := wholeNumber(output, t.field(output), 0, maxTokens)
	r.prompt, r.output = int(n), int(m)
	return err
}

// wallClock reads a date and a time of day, in UTC unless an offset follows, as the time
// since 1970.
func wallClock(b []byte) (time.Duration, error) {
	// Parse reads a fraction behind the seconds, whatever the layout.
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05"} {
		t, err := time.ParseInLocation(layout, string(b), time.UTC)
		if err == nil && t.Year() >= 1970 && t.Year() < 2116 {
			return time.Duration(t.UnixNano()), nil
		}
	}
	return 0, fmt.Errorf("timestamp is %s; allowed: 2006-01-02 15:04:05, with or without a fraction and an offset to UTC, from 1970 to 2115", excerpt(b))
}
