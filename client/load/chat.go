// Package load is layer 1 (clients), live: it sends what workload describes.
package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"kvasir/api"
	"kvasir/api/sse"
	"kvasir/client/workload"
	"kvasir/internal/seed"
)

// Chat is a number of users who hold conversations: closed loop, each sends its next
// message a while after it has read the answer. It shows a system at work; it does not
// measure one, since a slow answer delays the next question.
type Chat struct {
	BaseURL       string // of an OpenAI-compatible API, without /v1
	Model         string
	Users         int
	Turns         int           // of a conversation, then the user begins another
	Think         time.Duration // mean time between an answer and the next message
	MaxTokens     int           // bound of an answer
	Conversations workload.Conversations
}

// Run sends until ctx ends, and returns once every user has stopped. A call that fails
// ends its conversation; report, which may be nil, hears of it.
func (c Chat) Run(ctx context.Context, client *http.Client, report func(error)) {
	var users sync.WaitGroup
	for user := range c.Users {
		users.Go(func() {
			r := seed.New(c.Conversations.Seed, seed.Workload, uint64(user), 1<<33)
			// Users arrive one by one, not as a flood.
			for n := 0; pause(ctx, &r, c.Think); n++ {
				if err := c.converse(ctx, client, user+n*c.Users, &r); err != nil && ctx.Err() == nil && report != nil {
					report(err)
				}
			}
		})
	}
	users.Wait()
}

// pause waits for a random while, up to twice the mean. It reports whether ctx goes on.
func pause(ctx context.Context, r *seed.Rand, mean time.Duration) bool {
	timer := time.NewTimer(time.Duration(r.Float64() * 2 * float64(mean)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c Chat) converse(ctx context.Context, client *http.Client, conversation int, r *seed.Rand) error {
	messages := c.Conversations.Open(conversation)
	for turn := 1; ; turn++ {
		answer, err := c.ask(ctx, client, messages)
		if err != nil {
			return err
		}
		if turn == c.Turns || !pause(ctx, r, c.Think) {
			return nil
		}
		messages = append(messages, workload.Message{Role: "assistant", Content: answer},
			c.Conversations.Turn(conversation, turn+1))
	}
}

// ask sends the messages and reads the streamed answer.
func (c Chat) ask(ctx context.Context, client *http.Client, messages []workload.Message) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": c.Model, "messages": messages, "stream": true, "max_tokens": c.MaxTokens,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, said)
	}
	return readAnswer(resp.Body)
}

// errCut is a stream that ended without its end mark.
var errCut = errors.New("the stream ended before [DONE]")

// readAnswer returns the text of a streamed chat answer.
func readAnswer(r io.Reader) (string, error) {
	var events sse.Reader
	events.Reset(0)
	var text []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		events.Feed(buf[:n])
		for ev, ok := events.Next(); ok; ev, ok = events.Next() {
			switch api.ReadChunk(api.Chat, ev.Type, ev.Data).Kind {
			case api.Done:
				return string(text), nil
			case api.Failure:
				return "", fmt.Errorf("error in the stream: %s", ev.Data)
			case api.Content:
				var chunk struct {
					Choices []struct {
						Delta struct{ Content string }
					}
				}
				if err := json.Unmarshal(ev.Data, &chunk); err != nil {
					return "", fmt.Errorf("chunk of the stream: %w", err)
				}
				for _, choice := range chunk.Choices {
					text = append(text, choice.Delta.Content...)
				}
			}
		}
		if err != nil {
			return "", errors.Join(errCut, err)
		}
	}
}
