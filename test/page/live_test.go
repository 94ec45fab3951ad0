package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kvasir/test/program"
)

// field is where the dashboard says something of an endpoint, as JavaScript.
func field(endpoint, name string) string {
	return fmt.Sprintf("document.querySelector('tr[data-endpoint=%q] [data-field=%s]').textContent", endpoint, name)
}

// busyDemo runs kvasir demo with its traffic and returns the page's address and the admin token.
func busyDemo(t *testing.T) (base, token string) {
	t.Helper()
	p := program.Kvasir(t, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	m := p.Find(t, `page +(http://127\.0\.0\.1:\d+/)\n[^\n]*\n +admin token +(\S+)`)
	return m[1], m[2]
}

func TestLive_ShowsWhatGoesOn(t *testing.T) {
	program.Installed(t, "page")
	base, _ := busyDemo(t)
	b := open(t, desktop, base+"#/live")
	endpoints := eval[[]string](b, "[...document.querySelectorAll('tr[data-endpoint]')].map((r) => r.dataset.endpoint)")
	if got := strings.Join(endpoints, " "); got != "engine-1 engine-2 engine-3 engine-4" {
		t.Errorf("endpoints %s", got)
	}
	for _, e := range endpoints {
		b.until(e+" is in rotation", field(e, "state")+" === 'in rotation'")
		b.until(e+" has told its signals", "/old$/.test("+field(e, "signal")+")")
		b.until(e+" has a TTFT", "/ (ms|s)$/.test("+field(e, "ttft-p95")+")")
	}
	b.until("ten decisions have come", "document.querySelectorAll('ol.decisions li[data-call]').length >= 10")
	calls := eval[[]string](b, "[...document.querySelectorAll('ol.decisions li[data-call]')].map((l) => l.dataset.call)")
	seen := map[string]bool{}
	for _, c := range calls {
		if seen[c] {
			t.Errorf("call %s is shown twice", c)
		}
		seen[c] = true
	}
	b.until("more come", "document.querySelector('ol.decisions li[data-call]').dataset.call !== "+quote(calls[0]))
	b.until("what became of one is told", "/predicted .*, was /.test(document.querySelector('ol.decisions').textContent)")

	// One that is opened has every endpoint, with what was weighed of it.
	eval[any](b, "(() => {document.querySelector('ol.decisions li summary').click();})()")
	b.until("a decision says what was weighed", "document.querySelector('ol.decisions li details[open] .weighed tbody') !== null")
	rows := eval[[]string](b, "[...document.querySelectorAll('ol.decisions li details[open] .weighed tbody th')].map((h) => h.textContent)")
	if len(rows) != 4 || strings.Count(strings.Join(rows, " "), "chosen") != 1 {
		t.Errorf("weighed: %q", rows)
	}
	b.until("the calls are drawn", "document.querySelectorAll('figure[data-plot=rate] svg path').length > 0")
	b.until("the queues are drawn", "document.querySelectorAll('figure[data-plot=queue] svg path').length > 0")
	b.until("predictions are drawn", "document.querySelectorAll('figure[data-plot=predicted] svg :is(circle, path)').length > 3")
}

func TestLive_WithoutTheToken_ChangesNothing(t *testing.T) {
	program.Installed(t, "page")
	base, _ := busyDemo(t)
	b := open(t, desktop, base+"#/live")
	if n := eval[int](b, "[...document.querySelectorAll('[data-do=drain], [data-do=undrain], [data-do=weight]')].filter((e) => e.checkVisibility()).length"); n != 0 {
		t.Errorf("without the token, %d buttons are shown", n)
	}
	if !eval[bool](b, "document.querySelector('select[name=shadow]').disabled") {
		t.Error("without the token, another policy can be switched on")
	}
	order := `{"model": "llama-3.1-8b", "pool": "emulated", "endpoint": "engine-1"}`
	for _, path := range []string{"v1/endpoints/drain", "v1/endpoints/undrain", "v1/endpoints/weight", "v1/shadow"} {
		resp, err := http.Post(base+path, "application/json", strings.NewReader(order))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("POST %s without the token: status %d", path, resp.StatusCode)
		}
	}
	b.typeInto("input[name=token]", "kv_somebody-elses")
	b.until("the refusal is shown", "/that is not the admin token/.test(document.querySelector('form.token').textContent)")
	b.forgive("401")
	if n := eval[int](b, "[...document.querySelectorAll('[data-do=drain]')].filter((e) => e.checkVisibility()).length"); n != 0 {
		t.Errorf("with another token, %d buttons are shown", n)
	}
	if state := eval[string](b, field("engine-1", "state")); state != "in rotation" {
		t.Errorf("with another token engine-1 is %s", state)
	}
}

func TestLive_WithTheToken_DrainsAndWeighs(t *testing.T) {
	program.Installed(t, "page")
	base, token := busyDemo(t)
	b := open(t, desktop, base+"#/live")
	b.typeInto("input[name=token]", token)
	b.click("tr[data-endpoint=engine-2] [data-do=drain]")
	b.until("engine-2 drains", "/^drain(ing|ed)$/.test("+field("engine-2", "state")+")")
	b.click("tr[data-endpoint=engine-2] [data-do=undrain]")
	b.until("engine-2 is in rotation again", field("engine-2", "state")+" === 'in rotation'")
	b.typeInto("tr[data-endpoint=engine-2] input[type=number]", "0.5")
	b.click("tr[data-endpoint=engine-2] [data-do=weight]")
	b.until("engine-2 weighs half", "/0\\.5/.test("+field("engine-2", "share")+")")
	if state := eval[string](b, field("engine-1", "state")); state != "in rotation" {
		t.Errorf("engine-1 is %s", state)
	}
}

func TestLive_WhatIf_CountsWhatAnotherPolicyWouldDo(t *testing.T) {
	program.Installed(t, "page")
	base, token := busyDemo(t)
	b := open(t, desktop, base+"#/live")
	b.typeInto("input[name=token]", token)
	eval[any](b, "(() => {const s = document.querySelector('select[name=shadow]'); s.value = 'round-robin'; s.dispatchEvent(new Event('change'));})()")
	b.until("picks are counted", `/^[1-9][\d,]* picks, /.test(document.querySelector('.shadow p').textContent)`)
	b.until("its reasons are shown", "document.querySelectorAll('.shadow tbody tr').length > 0 && document.querySelector('.shadow table').checkVisibility()")
	b.until("a decision says what it would have chosen", "/round-robin: engine-\\d/.test(document.querySelector('ol.decisions').textContent)")
	eval[any](b, "(() => {const s = document.querySelector('select[name=shadow]'); s.value = ''; s.dispatchEvent(new Event('change'));})()")
	b.until("it is off", "!document.querySelector('.shadow table').checkVisibility()")
}

// mostSilence is how long a killed engine may look alive on the page.
const mostSilence = 3 * time.Second

func TestLive_AKilledEngine_ShowsWithinThreeSeconds(t *testing.T) {
	program.Installed(t, "page")
	endpoints := []string{"models:\n  m:\n    pools:\n      - name: gpus\n        endpoints:\n"}
	engines := map[string]*program.Process{}
	for _, name := range []string{"a", "b", "c"} {
		p := program.Kvasir(t, "engine", "--listen", "127.0.0.1:0", "--model", "m")
		endpoints = append(endpoints, fmt.Sprintf("          - {name: %s, url: %q}\n", name, p.Find(t, `answers at (http://[^/]+)/v1`)[1]))
		engines[name] = p
	}
	gateway := program.Serve(t, strings.Join(endpoints, ""))
	b := open(t, desktop, gateway.Admin+"/#/live")
	for name := range engines {
		b.until(name+" is in rotation", field(name, "state")+" === 'in rotation'")
	}
	engines["b"].Kill()
	killed := time.Now()
	b.until("the killed engine shows", field("b", "state")+" !== 'in rotation'")
	took := time.Since(killed)
	t.Logf("the killed engine showed after %v as %q", took.Round(10*time.Millisecond), eval[string](b, field("b", "state")))
	if took > mostSilence {
		t.Errorf("the killed engine showed after %v, allowed: %v", took, mostSilence)
	}
	for _, name := range []string{"a", "c"} {
		if state := eval[string](b, field(name, "state")); state != "in rotation" {
			t.Errorf("%s is %s", name, state)
		}
	}
}
