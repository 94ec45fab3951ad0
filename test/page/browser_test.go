package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"kvasir/test/program"
)

// patience bounds every wait for something that must come; it measures nothing.
const patience = 90 * time.Second

// chromium is one browser for all tests; every tab has storage and a cache of its own.
var chromium struct {
	once  sync.Once
	ctx   context.Context
	stop  func()
	fault error
}

func browser(t testing.TB) context.Context {
	t.Helper()
	program.Installed(t, "page")
	chromium.once.Do(func() {
		profile, err := os.MkdirTemp("", "kvasir-browser-")
		if err != nil {
			chromium.fault = err
			return
		}
		allocator, cancel := chromedp.NewExecAllocator(context.Background(),
			chromedp.ExecPath("chromium"), chromedp.UserDataDir(profile),
			chromedp.Flag("headless", true), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
			chromedp.NoDefaultBrowserCheck,
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
			chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
			chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
			chromedp.Flag("force-color-profile", "srgb"),
			// No name is looked up, and nothing but this machine is called.
			chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
		ctx, end := chromedp.NewContext(allocator)
		chromium.ctx, chromium.fault = ctx, chromedp.Do(ctx)
		chromium.stop = func() {
			_ = chromedp.Cancel(ctx)
			end()
			cancel()
			_ = os.RemoveAll(profile)
		}
	})
	if chromium.fault != nil {
		t.Fatalf("chromium: %v", chromium.fault)
	}
	return chromium.ctx
}

func closeBrowser() {
	if chromium.stop != nil {
		chromium.stop()
	}
}

// look is how a tab shows pages.
type look struct {
	width, height int64
	dark          bool
}

var desktop = look{width: 1280, height: 800}

// tab is a page that is open. Whatever the browser complains of while it is fails the test.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	own      string   // the page's origin
	problems []string // what the browser complained of
	asked    []string // the URLs that were requested
}

// open opens the URL and waits until the view has shown its data.
func open(t testing.TB, l look, address string) *tab {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{t: t, own: u.Scheme + "://" + u.Host}
	ctx, cancel := chromedp.NewContext(browser(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() {
		cancel()
		for _, p := range b.complaints() {
			t.Errorf("the browser complains at %s: %s", address, p)
		}
	})
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	if err := chromedp.Do(ctx); err != nil { // it makes the tab, which lives as long as this context
		t.Fatal(err)
	}
	b.do(send(network.Enable, network.EnableParams{}), send(audits.Enable, cdp.Empty{}),
		send(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
		chromedp.EmulateViewport(l.width, l.height),
		send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}),
		send(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchShifts}),
		chromedp.Navigate(address))
	b.ready()
	return b
}

// hear keeps what the browser says that is a complaint.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complain := func(format string, values ...any) { b.problems = append(b.problems, fmt.Sprintf(format, values...)) }
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		words := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			words += " " + x.Description
		}
		complain("exception: %s", words)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			complain("console %s: %s", e.Type, strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			complain("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if e.Issue.Code == audits.InspectorIssueCodeContentSecurityPolicyIssue {
			d := e.Issue.Details.ContentSecurityPolicyIssueDetails
			complain("content security policy: %s, %s", d.ViolatedDirective, d.BlockedURL)
		}
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme+"://"+u.Host != b.own && u.Scheme != "data" && u.Scheme != "blob" {
			complain("a request to another origin: %.200s", e.Request.URL)
		}
	}
}

// complaints returns what the browser complained of since the last call.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.problems
	b.problems = nil
	return p
}

// forgive waits until the browser has complained of something that a test brought about on
// purpose, and forgets it.
func (b *tab) forgive(words string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(15 * time.Millisecond) {
		b.mu.Lock()
		before := len(b.problems)
		b.problems = slices.DeleteFunc(b.problems, func(p string) bool { return strings.Contains(p, words) })
		found := len(b.problems) < before
		b.mu.Unlock()
		if found {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the browser does not complain of %q", words)
		}
	}
}

// send is the action of a command of the browser's protocol.
func send[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// do runs actions; the test ends where one fails.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what the JavaScript comes to; a promise is waited for.
func eval[T any](b *tab, source string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => JSON.stringify(await ("+source+")) ?? 'null')()", chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%v\n%.300s", err, source)
	}
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		b.t.Fatalf("%s: %v\n%.300s", source, err, text)
	}
	return value
}

// load runs a script that comes to nothing.
func (b *tab) load(source string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[*runtime.RemoteObject](source)); err != nil {
		b.t.Fatalf("%.300v", err)
	}
}

// quote returns a text as a JavaScript literal.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return string(b)
}

// until waits until the JavaScript is true.
func (b *tab) until(what, source string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !eval[bool](b, source); time.Sleep(15 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %v: %s\nthe page says: %.1500s\nthe browser complains: %q", patience, what, eval[string](b, "document.body.innerText"), b.complaints())
		}
	}
}

// ready waits until the view has shown its data.
func (b *tab) ready() {
	b.t.Helper()
	b.until("the view has shown its data", "document.querySelector('main[data-ready=true]') !== null")
}

// goTo shows another view of the page that is open.
func (b *tab) goTo(hash, view string) {
	b.t.Helper()
	eval[any](b, "{location.hash = "+quote(hash)+"}, null")
	b.until("the view "+view+" is shown", "document.querySelector('main[data-ready=true]')?.dataset.view === "+quote(view))
}

// typeInto replaces the text of a field, as a person does.
func (b *tab) typeInto(selector, text string) {
	b.t.Helper()
	eval[any](b, "(() => {const e = document.querySelector("+quote(selector)+"); e.focus(); e.select();})()")
	b.do(send(input.InsertText, input.InsertTextParams{Text: text}))
}

// click presses the mouse over the element.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// press presses keys.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}
