package proxy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// page answers scrapes with a page of metrics and calls with an answer.
func page(metrics string) scripted.Script {
	return func(c *scripted.Call) {
		if rec := c.Record(); rec.Target == "/metrics" {
			c.Reply(200, "text/plain; version=0.0.4", metrics)
			return
		}
		good(c)
	}
}

// load is a page as vLLM writes it, with a name for the usage.
func load(usage string, value float64) string {
	return fmt.Sprintf("vllm:num_requests_running{engine=\"0\"} 4\nvllm:num_requests_waiting{engine=\"0\"} 0\n%s{engine=\"0\"} %v\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n", usage, value)
}

// Field case F43, through the whole gateway: what endpoints say of themselves reaches the
// policy under the old name as well as the new one, with the endpoint's key; and the
// admin API shows it with its age.
func TestScrapedLoadSteersCalls(t *testing.T) {
	for _, name := range []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"} {
		t.Run(name, func(t *testing.T) {
			s := pooled(page(load(name, 0.98)), page(load(name, 0.02)))
			s.policy = "least-kv"
			s.config = func(c *proxy.Config) {
				withKey(c)
				c.Models[0].Pools[0].Scrape, c.Models[0].Pools[0].Dialect = time.Second, upstream.VLLM()
			}
			inBubble(t, s, func(t *testing.T, r *rig) {
				ctx, cancel := context.WithCancel(t.Context())
				watched := make(chan bool)
				go func() { defer close(watched); r.gateway.Watch(ctx) }()
				time.Sleep(1500 * time.Millisecond)
				for range 10 {
					if a := r.post(chatPath, unstreamed); a.header.Get("X-Kvasir-Endpoint") != "e2" {
						t.Errorf("a call went to %s", a.header.Get("X-Kvasir-Endpoint"))
					}
				}
				e := r.gateway.Pools()[0].Pools[0].Endpoints[0]
				if e.KVUsage == nil || *e.KVUsage != 0.98 || e.Running == nil || *e.Running != 4 || e.SignalAge == nil || *e.SignalAge > 1 {
					t.Errorf("endpoint %+v", e)
				}
				for _, call := range r.upstreams[0].Calls() {
					if auth, _ := call.Get("authorization"); auth != "Bearer "+secretKey {
						t.Errorf("scraped with %q", auth)
					}
				}
				cancel()
				<-watched
			})
		})
	}
}

// A page without the usage leaves it unknown, not zero; a page that is none is told of
// once, and the endpoint is called all the same.
func TestUnknownLoadIsNotZero(t *testing.T) {
	s := pooled(page("vllm:num_requests_running 4\nvllm:num_requests_waiting 1\n"), page("<html>no metrics</html>"))
	s.policy = "least-kv"
	s.config = func(c *proxy.Config) {
		c.Models[0].Pools[0].Scrape, c.Models[0].Pools[0].Dialect = time.Second, upstream.VLLM()
	}
	inBubble(t, s, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan bool)
		go func() { defer close(watched); r.gateway.Watch(ctx) }()
		time.Sleep(5500 * time.Millisecond)
		seen := map[string]bool{}
		for range 30 {
			a := r.post(chatPath, unstreamed)
			seen[a.header.Get("X-Kvasir-Endpoint")] = true
		}
		if len(seen) != 2 {
			t.Errorf("calls went to %v alone", seen)
		}
		es := r.gateway.Pools()[0].Pools[0].Endpoints
		if es[0].KVUsage != nil || es[0].Running == nil || es[1].Running != nil || es[1].SignalAge != nil {
			t.Errorf("endpoints %+v", es)
		}
		if said := r.records.said(); len(said) != 1 || said[0] != "scrape failed" {
			t.Errorf("the log says %q", said)
		}
		cancel()
		<-watched
	})
}
