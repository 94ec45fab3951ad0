package main

import (
	"net/http/httptest"
	"testing"
	"time"
)

func TestCellsAreAnsweredAsAsked(t *testing.T) {
	server := httptest.NewServer(newUpstream())
	defer server.Close()
	for _, c := range []cell{
		{Body: 4 * kib},
		{Body: 400 * kib},
		{Body: 4 * kib, Events: 64},
		{Body: 4 * kib, Events: 4, Pace: time.Millisecond},
	} {
		conn, err := dial(server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		requests := prepare(c, makeConversations(c.Body, 1)[:2])
		for i := range 4 {
			if _, err := conn.call(&requests[i%2], uint64(i), expectedAnswer(c)); err != nil {
				t.Errorf("%s, call %d: %v", c, i, err)
			}
		}
		conn.conn.Close()
	}
}
