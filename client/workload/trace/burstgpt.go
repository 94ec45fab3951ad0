package trace

import (
	"fmt"
	"strings"
	"time"
)

// burstGPTFormat reads BurstGPT (Wang et al., "BurstGPT", 2024; HPMLL/BurstGPT): CSV with
// Timestamp in seconds, mostly whole ones, Model, Request tokens, Response tokens, Total
// tokens and Log Type, one call a line, nothing of prefixes. Later releases add Session ID,
// which calls of the API have not, and Elapsed time, the seconds that the answer took. A
// call with no response tokens had failed: it is a call with an empty answer here, and the
// releases "without fails" have none. The class is model and log type.
func burstGPTFormat() format {
	wanted := []string{"timestamp", "request tokens", "response tokens"}
	return format{
		name: BurstGPT, about: "CSV with Timestamp,Model,Request tokens,Response tokens: BurstGPT, with or without Session ID",
		detect: isHeader(wanted...),
		unit:   time.Second, grouped: true,
		rows: func(s *settings) parseRows {
			b := burstGPT{settings: s, wanted: wanted, classes: map[string]string{}}
			return b.parse
		},
	}
}

type burstGPT struct {
	*settings
	table
	wanted  []string
	classes map[string]string // few; kept so that rows share their names
}

// maxClasses bounds the names that are kept.
const maxClasses = 1000

func (b *burstGPT) parse(line []byte, emit func(*row) bool) error {
	if header, err := b.header(line, b.wanted...); header || err != nil {
		return err
	}
	if err := b.read(line); err != nil {
		return err
	}
	r := &row{timed: true, session: string(b.field("session id")), class: b.class()}
	var err error
	if r.at, err = duration("timestamp", b.field("timestamp"), b.unit); err != nil {
		return err
	}
	if lasted := b.field("elapsed time"); len(lasted) > 0 {
		r.hasLasted = true
		if r.lasted, err = duration("elapsed time", lasted, b.unit); err != nil {
			return err
		}
	}
	if err := b.tokens(r, "request tokens", "response tokens"); err != nil {
		return err
	}
	emit(r)
	return nil
}

func (b *burstGPT) class() string {
	model, kind := b.field("model"), b.field("log type")
	name := strings.TrimSpace(fmt.Sprintf("%s %s", model, kind))
	if known, ok := b.classes[name]; ok {
		return known
	}
	if len(b.classes) < maxClasses {
		b.classes[name] = name
	}
	return name
}
