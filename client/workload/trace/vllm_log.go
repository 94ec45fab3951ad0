package trace

import (
	"fmt"
	"time"
)

// vllmLogFormat reads what a vLLM server has served, as LLMServingSim logs it
// (casys-kaist/LLMServingSim): JSONL with input_toks, output_toks, arrival_time in seconds
// and the instants of last_token_ts and queued_ts, one call a line in the order of arrival.
// Nothing is known of prefixes.
func vllmLogFormat() format {
	return format{
		name: VLLMLog, about: "JSONL with input_toks,output_toks,arrival_time: requests that a vLLM server has served",
		detect: hasFields("input_toks", "output_toks", "arrival_time"),
		unit:   time.Second,
		rows: func(st *settings) parseRows {
			var s scanner
			return func(record []byte, emit func(*row) bool) error {
				r := new(row)
				hasOutput := false
				s.reset(record)
				for s.open('{'); s.more('}'); {
					switch string(s.name) {
					case "input_toks":
						r.prompt = int(s.integer("input_toks", 1, maxTokens))
					case "output_toks":
						r.output, hasOutput = int(s.integer("output_toks", 0, maxTokens)), true
					case "arrival_time":
						r.at, r.timed = s.duration("arrival_time", st.unit), true
					default:
						s.skip()
					}
				}
				s.end()
				switch {
				case s.err != nil:
					return s.err
				case r.prompt == 0:
					return fmt.Errorf("input_toks is missing; allowed: whole numbers from 1 to %d", maxTokens)
				case !hasOutput:
					return fmt.Errorf("output_toks is missing; allowed: whole numbers from 0 to %d", maxTokens)
				case !r.timed:
					return fmt.Errorf("arrival_time is missing; allowed: seconds, from 0")
				}
				emit(r)
				return nil
			}
		},
	}
}
