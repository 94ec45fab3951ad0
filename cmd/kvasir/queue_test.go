package main

import (
	"testing"
	"time"

	"kvasir/config"
	"kvasir/gateway/admission"
)

// Every key of a queue reaches the machine.
func TestQueue_EveryKey(t *testing.T) {
	got, err := queue(config.Queue{
		Work: time.Second, Tokens: 2, Limit: config.LimitGradient, Gradient: config.Gradient{Min: 3, Max: 4, Tolerance: 5},
		Order: "fair-local", Turn: 6, Principal: "conversation", Weights: config.Weights{Input: 7, Output: 8, Cached: 9}, Quantum: 10,
		Length: 11, Bytes: 12, MaxWait: 13, MaxWaitRatio: 14,
	})
	want := admission.Config{
		Work: time.Second, Tokens: 2, Adaptive: true,
		Gradient: admission.GradientConfig{Min: 3, Max: 4, Tolerance: 5, Smoothing: admission.DefaultGradient().Smoothing, Window: admission.DefaultGradient().Window},
		Order:    admission.FairLocal, Turn: 6, Fairness: admission.Fairness{By: admission.ByConversation, Input: 7, Output: 8, Cached: 9, Quantum: 10},
		Length: 11, Bytes: 12, MaxWait: 13, MaxWaitRatio: 14,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if off, err := queue(config.DefaultQueue()); err != nil || off != admission.Default() {
		t.Errorf("by default %+v, %v", off, err)
	}
}
