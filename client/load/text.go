package load

import (
	"encoding/json"

	"kvasir/api"
)

// appendText appends the text that a chunk of an answer brings.
func appendText(text []byte, g api.Grammar, data []byte) []byte {
	var chunk struct {
		Choices []struct {
			Text  string
			Delta struct{ Content string }
		}
		Delta json.RawMessage
	}
	if json.Unmarshal(data, &chunk) != nil {
		return text // content of a form that has no text
	}
	for _, choice := range chunk.Choices {
		text = append(append(text, choice.Text...), choice.Delta.Content...)
	}
	var piece string
	switch g {
	case api.Responses:
		_ = json.Unmarshal(chunk.Delta, &piece)
	case api.Messages:
		var delta struct{ Text string }
		_ = json.Unmarshal(chunk.Delta, &delta)
		piece = delta.Text
	}
	return append(text, piece...)
}
