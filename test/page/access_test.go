package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"kvasir/test/program"
)

// hashes returns the address of every view of the page, labs of the catalogue included.
func hashes(t *testing.T) []string {
	t.Helper()
	all := []string{"#/", "#/labs", "#/code/selection/policy/power_of_two.go", "#/live"}
	for _, l := range labs(t) {
		hash := "#/labs/" + l.Name
		if l.Seeds > fewSeeds {
			hash += fmt.Sprintf("?seeds=%d", fewSeeds)
		}
		all = append(all, hash)
	}
	return all
}

// What a page may move by itself while it loads, as a sum of layout shifts.
const mostShift = 0.02

// mostPaint bounds the first paint. What is aimed at is a tenth of it: that depends on the machine,
// so it is printed and not demanded.
const mostPaint = 1000 // ms

// Each view is opened once and looked at in every way.
func TestViews_AreOpenToEverybody(t *testing.T) {
	dir := program.Installed(t, "page")
	axe, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	base := demo(t)
	for _, hash := range hashes(t) {
		t.Run(strings.TrimPrefix(hash, "#/"), func(t *testing.T) {
			t.Parallel()
			b := open(t, desktop, base+hash)
			b.settled()
			b.staysInPlace()
			b.reachableByKey()
			b.load(string(axe))
			b.accessible("light", wcag)
			b.recolour("dark")
			b.accessible("dark", colours)
			b.recolour("light")
			b.do(chromedp.EmulateViewport(360, 740))
			b.settled()
			b.fits(360)
			b.accessible("at phone width", wcag)
		})
	}
}

// recolour changes the system's colours.
func (b *tab) recolour(scheme string) {
	b.t.Helper()
	b.do(send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}))
	b.settled()
}

// settled waits until what was changed has been laid out and painted.
func (b *tab) settled() {
	b.t.Helper()
	eval[any](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))")
}

// watchShifts keeps what moves on a page that nobody touched.
const watchShifts = `
window.kvasirShifts = { sum: 0, moved: [] };
new PerformanceObserver((list) => {
  for (const e of list.getEntries()) {
    if (e.hadRecentInput) continue;
    window.kvasirShifts.sum += e.value;
    for (const s of e.sources ?? []) window.kvasirShifts.moved.push((s.node?.nodeName ?? "?") + "." + (s.node?.className ?? ""));
  }
}).observe({ type: "layout-shift", buffered: true });
`

func (b *tab) staysInPlace() {
	b.t.Helper()
	s := eval[struct {
		Sum   float64
		Moved []string
	}](b, "window.kvasirShifts")
	if s.Sum >= mostShift {
		b.t.Errorf("layout shifts of %.3f, allowed: %v; what moved: %v", s.Sum, mostShift, s.Moved)
	}
}

func (b *tab) paintsEarly() {
	b.t.Helper()
	b.until("something is painted", `performance.getEntriesByName("first-contentful-paint").length > 0`)
	at := eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	b.t.Logf("first contentful paint after %.0f ms", at)
	if at > mostPaint {
		b.t.Errorf("the first contentful paint came after %.0f ms, allowed: %d", at, mostPaint)
	}
}

// How soon something is to be seen is a figure, not a law.
func TestViews_PaintEarly(t *testing.T) {
	bothForms(t, func(t *testing.T, base string) {
		for _, hash := range []string{"#/", "#/labs/knee"} {
			t.Run(strings.TrimPrefix(hash, "#/"), func(t *testing.T) {
				b := open(t, desktop, base+hash)
				for range 3 {
					b.do(chromedp.Reload())
					b.ready()
					b.settled()
					b.paintsEarly()
				}
			})
		}
	})
}

// reachableByKey presses Tab through the page: every control must have its turn, and show it.
func (b *tab) reachableByKey() {
	b.t.Helper()
	controls := eval[int](b, `(() => {
	  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest("[inert]");
	  window.kvasirControls = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
	    .filter((e) => shown(e) && !e.disabled && e.tabIndex >= 0);
	  window.kvasirFocused = new Map();
	  document.addEventListener("focusin", ({ target }) => {
	    const style = getComputedStyle(target);
	    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
	    window.kvasirFocused.set(target, target.matches(":focus-visible") && (outlined || style.boxShadow !== "none"));
	  });
	  document.activeElement?.blur();
	  return window.kvasirControls.length;
	})()`)
	var tabs []chromedp.Action[chromedp.Void]
	for range controls + 3 {
		tabs = append(tabs, chromedp.KeyEvent(kb.Tab))
	}
	b.do(tabs...)
	missed := eval[[]string](b, `window.kvasirControls.filter((e) => e.isConnected && window.kvasirFocused.get(e) !== true)
	  .map((e) => (window.kvasirFocused.has(e) ? "has the focus and does not show it: " : "cannot be reached: ") + e.outerHTML.slice(0, 160))`)
	eval[any](b, "(document.activeElement?.blur(), null)") // what shows itself with the focus hides again
	for _, m := range missed {
		b.t.Errorf("by keyboard, a control %s", m)
	}
	if controls < 5 {
		b.t.Errorf("there are %d controls", controls)
	}
}

// fits reports what is wider than the window, but for what scrolls by itself.
func (b *tab) fits(width int) {
	b.t.Helper()
	wide := eval[struct {
		Page int
		By   []string
	}](b, `(() => {
	  const holder = (e) => (getComputedStyle(e).position === "absolute" ? e.offsetParent : e.parentElement);
	  const scrolls = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== "visible" || scrolls(holder(e)));
	  const wide = (e) => e.checkVisibility() && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
	  return {
	    page: document.scrollingElement.scrollWidth,
	    by: [...document.body.querySelectorAll("*")].filter((e) => wide(e) && !scrolls(holder(e))).slice(0, 6).map((e) => e.outerHTML.slice(0, 160)),
	  };
	})()`)
	if wide.Page > width {
		b.t.Errorf("at %d px the page is %d px wide:\n%s", width, wide.Page, strings.Join(wide.By, "\n"))
	}
}

// violation is one of axe's findings.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string `json:"html"`
		FailureSummary string `json:"failureSummary"`
	}
}

// What axe looks for: what WCAG 2 forbids at its levels A and AA; and, of that, what other colours
// can change.
const (
	wcag    = `{ type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }`
	colours = `{ type: "rule", values: ["color-contrast", "link-in-text-block"] }`
)

// accessible reports what axe finds.
func (b *tab) accessible(how, rules string) {
	b.t.Helper()
	found := eval[struct {
		Violations []violation
		Passes     int
	}](b, `axe.run(document, { runOnly: `+rules+`, resultTypes: ["violations"] })
	  .then((r) => ({ violations: r.violations, passes: r.passes.length }))`)
	for _, v := range found.Violations {
		var nodes []string
		for _, n := range v.Nodes[:min(3, len(v.Nodes))] {
			nodes = append(nodes, fmt.Sprintf("%.200s\n    %s", n.HTML, strings.ReplaceAll(n.FailureSummary, "\n", " ")))
		}
		b.t.Errorf("%s: %s (%s): %s, %d times:\n    %s", how, v.ID, v.Impact, v.Help, len(v.Nodes), strings.Join(nodes, "\n    "))
	}
	if found.Passes < 1 || rules == wcag && found.Passes < 5 {
		b.t.Errorf("%s: axe passed %d rules only, so it did not look", how, found.Passes)
	}
}

// mostBytes bounds what the page weighs without the labs for the browser and the code that it
// shows on demand.
const mostBytes = 300_000

func TestPage_IsLight(t *testing.T) {
	program.Installed(t, "page")
	site := exportDir(t)
	page, code := int64(0), int64(0)
	err := filepath.WalkDir(site, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch relative, _ := filepath.Rel(site, name); {
		case relative == "kvasir.wasm":
			t.Logf("kvasir.wasm: %d bytes", info.Size())
		case strings.HasPrefix(relative, "code"+string(filepath.Separator)):
			code += info.Size()
		default:
			page += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the page: %d bytes; the code that it shows: %d bytes", page, code)
	if page >= mostBytes {
		t.Errorf("the page has %d bytes, allowed: %d", page, mostBytes)
	}
}
