package page

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"kvasir/test/program"
)

// fakeStream puts the dashboard in the page, with a stream of which the test says what comes:
// tell(event, data) of copies of known.state and known.decision, which are the documented ones.
func fakeStream(t *testing.T, b *tab) {
	t.Helper()
	documented, err := os.ReadFile("../../web/testdata/live.json")
	if err != nil {
		t.Fatal(err)
	}
	eval[any](b, `(async () => {
		globalThis.known = Object.fromEntries(`+string(documented)+`.map((e) => [e.event, e.data]));
		const real = fetch;
		globalThis.fetch = (path, options) => {
			if (path === "v1/token") return Promise.resolve(new Response("{}")); // any is right
			if (path !== "v1/live") return real(path, options);
			const body = new ReadableStream({ start(c) { globalThis.socket = c; } });
			return Promise.resolve(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
		};
		globalThis.tell = (event, data) => socket.enqueue(new TextEncoder().encode("event: " + event + "\ndata: " + JSON.stringify(data) + "\n\n"));
		globalThis.state = (change) => { const s = structuredClone(known.state); change(s); s.at_unix_seconds += (globalThis.told = (globalThis.told ?? 0) + 1); tell("state", s); };
		const { live } = await import("./live.js");
		const [view] = live(new AbortController().signal);
		document.getElementById("main").replaceChildren(view);
		await new Promise((r) => setTimeout(r, 50));
		tell("history", known.history);
		state(() => {});
	})()`)
	b.until("the endpoints are shown", "document.querySelectorAll('tr[data-endpoint]').length > 0")
}

// opened opens the page and puts the dashboard with a fake stream in it.
func opened(t *testing.T) *tab {
	program.Installed(t, "page")
	b := open(t, desktop, demo(t, "--no-traffic"))
	fakeStream(t, b)
	return b
}

func TestLive_APoolWithoutEndpoints_IsShown(t *testing.T) {
	b := opened(t)
	eval[any](b, "(() => {state((s) => { for (const p of s.models[0].pools) { p.endpoints = []; delete p.queue; } });})()")
	b.until("its endpoints are gone", "document.querySelectorAll('tr[data-endpoint]').length === 0")
	b.until("the stream goes on", "document.querySelector('.status').dataset.state === 'connected'")
	eval[any](b, "(() => {state((s) => { s.models[0].pools[0].endpoints.length = 1; });})()")
	b.until("one is found", "document.querySelectorAll('tr[data-endpoint]').length === 1")
}

// TestLive_WhatIsBeingDone_IsLeftAlone by the state that comes each second.
func TestLive_WhatIsBeingDone_IsLeftAlone(t *testing.T) {
	b := opened(t)
	b.typeInto("input[name=token]", "some token")
	const weight = "tr[data-endpoint] .operations input"
	b.until("weights can be set", "document.querySelector("+quote(weight)+").checkVisibility()")
	b.typeInto(weight, "0")
	b.press(kb.Backspace)
	eval[any](b, "(() => {state(() => {}); state((s) => { s.models[0].in_flight = 77; });})()")
	b.until("a state has come", "document.querySelector('[data-tile=\"in flight\"] dd').textContent === '77'")
	if got := eval[string](b, "document.querySelector("+quote(weight)+").value"); got != "" {
		t.Errorf("the weight that was cleared to type another one is %q", got)
	}

	const drawing = "document.querySelector('figure[data-plot=rate] svg[tabindex]')"
	eval[any](b, "(() => {globalThis.before = "+drawing+"; before.focus();})()")
	b.press(kb.Home)
	eval[any](b, "(() => {state((s) => { s.models[0].in_flight = 78; });})()")
	b.until("another has come", "document.querySelector('[data-tile=\"in flight\"] dd').textContent === '78'")
	if !eval[bool](b, "document.activeElement === before && before.querySelector('.cursor').getAttribute('visibility') === 'visible'") {
		t.Errorf("the focus is at %s, or the cursor of the chart is gone", eval[string](b, "document.activeElement.outerHTML.slice(0, 80)"))
	}
	eval[any](b, "(() => {before.blur();})()")
	b.until("the chart goes on", drawing+" !== before")

	eval[any](b, `(() => {
		globalThis.said = 0;
		new MutationObserver(() => { said++; }).observe(document.querySelector(".status"), { childList: true, characterData: true, subtree: true });
		state((s) => { s.models[0].in_flight = 79; });
	})()`)
	b.until("a third has come", "document.querySelector('[data-tile=\"in flight\"] dd').textContent === '79'")
	if n := eval[int](b, "new Promise((r) => setTimeout(() => r(said), 20))"); n != 0 {
		t.Errorf("the status, which is read out, was written %d times with the same words", n)
	}
}

func TestLive_WithoutAConfiguredToken_AsksForNone(t *testing.T) {
	b := opened(t)
	eval[any](b, "(() => {state((s) => { s.may_change = false; });})()")
	b.until("the field is gone", "!document.querySelector('input[name=token]').checkVisibility()")
}

func TestLive_ASecondAttempt_HasARowOfItsOwn(t *testing.T) {
	b := opened(t)
	eval[any](b, `(() => {
		tell("decision", known.decision);
		tell("decision", { ...known.decision, attempt: known.decision.attempt + 1 });
		for (let i = 0; i < 59; i++) tell("decision", { ...known.decision, call: 1e6 + i });
		tell("outcome", { ...known.outcome, call: known.decision.call, outcome: "success", ttft_seconds: 0.25 });
	})()`)
	const last = "document.querySelector('ol.decisions').lastElementChild"
	b.until("the list is full", "document.querySelectorAll('ol.decisions li').length === 60 && "+last+".dataset.call === `${known.decision.call}`")
	b.until("the later attempt's row has the outcome", "/250 ms$/.test("+last+".querySelector('.outcome').textContent)")
}

// TestLab_WhileItRuns_TheReaderIsLeftAlone: who came to a lab and is at work in it already is not
// taken back to its top when it has run, and settings on the way are not played one by one.
func TestLab_WhileItRuns_TheReaderIsLeftAlone(t *testing.T) {
	program.Installed(t, "page")
	b := open(t, desktop, demo(t, "--no-traffic"))
	eval[any](b, `(() => {
		const real = fetch;
		globalThis.asked = [];
		globalThis.fetch = async (path, options) => {
			if (path !== "v1/labs" || options.method !== "POST") return real(path, options);
			asked.push(JSON.parse(options.body).settings.wait ?? "");
			await new Promise((r) => { globalThis.goOn = r; });
			return real(path, options);
		};
		location.hash = "#/labs/knee";
	})()`)
	b.until("the lab runs", "asked.length === 1")
	b.typeInto("form.settings [name=wait]", "4")
	for _, wait := range []string{"5", "6"} {
		eval[any](b, "new Promise((r) => setTimeout(r, 250))") // longer than the page waits for more
		b.typeInto("form.settings [name=wait]", wait)
	}
	eval[any](b, "new Promise((r) => setTimeout(r, 250))")
	eval[any](b, "(() => {goOn();})()")
	b.until("what was set last is asked for", "asked.length === 2")
	eval[any](b, "(() => {goOn();})()")
	b.stands("wait", "6")
	if got := eval[[]string](b, "asked"); len(got) != 2 || got[1] != "6" {
		t.Errorf("asked for %q", got)
	}
	if got := eval[string](b, "document.activeElement.name ?? document.activeElement.id"); got != "wait" {
		t.Errorf("the focus has gone to %q", got)
	}

	// A reset takes back what was refused as well, of which the address knows nothing.
	b.click("[data-do=reset]")
	b.until("the lab runs again", "asked.length === 3")
	eval[any](b, "(() => {globalThis.fetch = ((real) => (path, o) => (path === 'v1/labs' ? Promise.reject(new Error('no')) : real(path, o)))(fetch); goOn();})()")
	b.ready()
	b.typeInto("form.settings [name=wait]", "7")
	b.until("the failure is shown", "document.querySelector('.problem').textContent === 'no'")
	b.click("[data-do=reset]")
	b.until("the setting is the lab's again", "document.querySelector('form.settings [name=wait]').value === '3'")
}

// TestLab_BarsHaveTheirMarks: a share that would be fair is a line through them, with its name.
func TestLab_BarsHaveTheirMarks(t *testing.T) {
	program.Installed(t, "page")
	b := open(t, desktop, demo(t, "--no-traffic")+"#/labs/newcomer?seeds=1")
	b.until("the bars are drawn", "document.querySelector('figure[data-plot=shares] svg .bar') !== null")
	const marked = "(() => {const f = document.querySelector('figure[data-plot=shares]'); return f.querySelectorAll('svg .mark').length + ' ' + [...f.querySelectorAll('svg .note')].map((n) => n.textContent).join()})()"
	if got := eval[string](b, marked); got != "1 its share" {
		t.Errorf("marks: %s", got)
	}
}

func TestLab_ASliderSaysItsSettingsValue(t *testing.T) {
	bothForms(t, func(t *testing.T, base string) {
		b := open(t, desktop, base+"#/labs/knee")
		const text = "document.querySelector('form.settings input[type=range][aria-label^=wait]').getAttribute('aria-valuetext')"
		if got := eval[string](b, text); got != "3" {
			t.Errorf("before anything is moved it says %q", got)
		}
		b.typeInto("form.settings [name=wait]", "4")
		b.until("it follows", text+" === '4'")
	})
}

func TestPage_AnAddressThatIsNone_SaysSo(t *testing.T) {
	program.Installed(t, "page")
	b := open(t, desktop, demo(t, "--no-traffic")+"#/labs/knee")
	eval[any](b, "(() => {location.hash = '#/labs/%';})()")
	b.until("the page says so", "document.querySelector('main [role=alert]')?.checkVisibility() && /That did not work/.test(document.querySelector('main').textContent)")
}

// TestStream_ThatFallsSilent_IsOpenedAnew, and the silent one is let go: a network that is gone
// tells neither side.
func TestStream_ThatFallsSilent_IsOpenedAnew(t *testing.T) {
	program.Installed(t, "page")
	b := open(t, desktop, demo(t, "--no-traffic"))
	eval[any](b, `(async () => {
		globalThis.seen = [];
		const real = fetch;
		globalThis.fetch = (path, options) => (path !== "silent" ? real(path, options) : Promise.resolve(new Response(
			new ReadableStream({ cancel() { seen.push("let go"); } }), { headers: { "Content-Type": "text/event-stream" } })));
		const { follow } = await import("./stream.js");
		globalThis.stop = new AbortController();
		follow("silent", stop.signal, () => {}, (word) => seen.push(word), 50);
	})()`)
	b.until("it is opened again", "seen.filter((word) => word === 'connected').length === 2")
	eval[any](b, "(() => {stop.abort();})()")
	if got := eval[string](b, "seen.slice(0, 4).sort().join()"); got != "connected,connected,let go,lost" {
		t.Errorf("%s", got)
	}
}
