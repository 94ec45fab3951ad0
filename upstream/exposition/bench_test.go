package exposition

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkScan reads a page of 200 KB like vLLM's, in which three lines are wanted.
func BenchmarkScan(b *testing.B) {
	var page bytes.Buffer
	for i := 0; page.Len() < 200_000; i++ {
		fmt.Fprintf(&page, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"%d.0\",model_name=\"meta-llama/Llama-3.1-8B\"} %d.0\n", i, i)
		if i%1000 == 0 {
			fmt.Fprintf(&page, "vllm:num_requests_waiting{engine=\"%d\",model_name=\"meta-llama/Llama-3.1-8B\"} 3.0\n", i/1000)
		}
	}
	b.SetBytes(int64(page.Len()))
	b.ReportAllocs()
	sum := 0.0
	for b.Loop() {
		s := NewScanner(page.Bytes(), func(name []byte) bool { return string(name) == "vllm:num_requests_waiting" })
		for s.Scan() {
			sum += s.Value()
		}
	}
	if sum == 0 {
		b.Fatal("nothing found")
	}
}
