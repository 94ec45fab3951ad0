package upstream

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"kvasir/selection/signal"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	page, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// TestReadSGLang_WholePages reads one server's pages, alone and together.
func TestReadSGLang_WholePages(t *testing.T) {
	d := SGLang()
	metrics, mr := d.ReadLoad(Page{Body: golden(t, "sglang_metrics.txt")}, at)
	m := want{running: new(8.0), waiting: new(7.0), usage: new(0.5), blocks: new(12500.0), tokens: new(16.0),
		queries: new(1234567.0), hits: new(350000.0), generated: new(2501000.0), preemptions: new(11.0)}
	diff(t, metrics, m)
	loads, lr := d.LoadPages[0].Read(Page{Body: golden(t, "sglang_loads.json")}, at)
	diff(t, loads, want{running: new(10.0), waiting: new(8.0), usage: new((0.3 + 0.8) / 2), waitingTokens: new(5120.0),
		blocks: new(200000.0), tokens: new(1.0)})
	old, or := d.LoadPages[1].Read(Page{Body: golden(t, "sglang_get_load.json")}, at)
	diff(t, old, want{running: new(10.0), waiting: new(8.0)})
	if !mr.Clean() || !lr.Clean() || or.Samples != 4 || !slices.Equal(or.Missing, []string{"kv_usage"}) {
		t.Errorf("reports %+v, %+v, %+v", mr, lr, or)
	}

	both, report := Join(metrics, mr, loads, lr)
	w := m
	w.running, w.waiting, w.usage, w.waitingTokens = new(10.0), new(8.0), new((0.3+0.8)/2), new(5120.0)
	diff(t, both, w)
	if !report.Clean() {
		t.Errorf("report %+v", report)
	}
	both, _ = Join(metrics, mr, old, or)
	w = m
	w.running, w.waiting = new(10.0), new(8.0)
	diff(t, both, w)

	both, _ = Join(metrics, mr, loads, lr)
	ranks := both.Ranks.All()
	if len(ranks) != 2 || ranks[1].ID != 1 || ranks[1].Running != 4 || ranks[1].Waiting != 8 || ranks[1].KVUsage != 0.8 ||
		ranks[1].WaitingTokens != 5120 || ranks[1].Preemptions != 9 || !math.IsNaN(ranks[1].Generated) {
		t.Errorf("ranks %+v", ranks)
	}
	if most := both.KVUsageMax(); most != signal.Known(0.8, at) {
		t.Errorf("fullest rank %+v", most)
	}
}

func TestReadSGLang_Capacity(t *testing.T) {
	for page, w := range map[string]want{
		"sglang:num_pages 100\nsglang:page_size 16\nsglang:max_total_num_tokens 1600\n":              {blocks: new(100.0), tokens: new(16.0)},
		"sglang:max_total_num_tokens 1615\nsglang:page_size 16\n":                                    {blocks: new(100.0), tokens: new(16.0)},
		"sglang:max_total_num_tokens 1615\n":                                                         {blocks: new(1615.0), tokens: new(1.0)},
		"sglang:num_pages 100\n":                                                                     {},
		"sglang:page_size 16\n":                                                                      {},
		"sglang:page_size 0\nsglang:num_pages 100\n":                                                 {},
		"sglang:num_pages{dp_rank=\"0\"} 5\nsglang:num_pages{dp_rank=\"1\"} 5\nsglang:page_size 1\n": {blocks: new(10.0), tokens: new(1.0)},
	} {
		l, _ := SGLang().ReadLoad(Page{Body: []byte(page)}, at)
		diff(t, l, w)
	}
}

func TestReadSGLang_WhenPageIsNotJSON_IsABadLine(t *testing.T) {
	for _, p := range SGLang().LoadPages {
		for _, page := range []string{"", "<html>", "5", `{"loads":{}}`, `[[]]`, `[{"num_reqs":1}`, strings.Repeat("[", 1<<20)} {
			if l, r := p.Read(Page{Body: []byte(page)}, at); r.BadLines != 1 || r.Samples != 0 || l != (signal.Load{}) {
				t.Errorf("%s: %.20q: %+v, %+v", p.Path, page, l, r)
			}
		}
	}
}
