package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"kvasir/test/program"
)

// listed is a lab of kvasir lab list.
type listed struct {
	Name, Title string
	Seeds       int // 0: nothing is drawn
	Params      []param
}

type param struct {
	Key, Kind, Default string
	Min, Max           float64
	Choices            []string
}

func labs(t *testing.T) []listed {
	t.Helper()
	var list struct{ Labs []listed }
	if err := json.Unmarshal(program.Output(t, "lab", "list", "--format", "json"), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Labs) == 0 {
		t.Fatal("there is no lab")
	}
	return list.Labs
}

// result is what kvasir lab run gives.
type result struct {
	Lab    string
	Tables []struct {
		Name string
		Rows [][]any
		Text [][]string // the same, as the terminal prints it
	}
	Plots    []struct{ Name string }
	Players  []struct{ Name string }
	Verdicts []any
}

// printed has what kvasir lab run gave already, by its command line.
var printed sync.Map

// run returns what kvasir lab run gives.
func run(t *testing.T, name string, flags ...string) result {
	t.Helper()
	args := append([]string{"lab", "run", name, "--format", "json"}, flags...)
	line := strings.Join(args, " ")
	if r, ok := printed.Load(line); ok {
		return r.(result)
	}
	var r struct{ Results []result }
	if err := json.Unmarshal(program.Output(t, args...), &r); err != nil {
		t.Fatal(err)
	}
	printed.Store(line, r.Results[0])
	return r.Results[0]
}

// other returns a setting that is not the default.
func (p param) other() string {
	switch p.Kind {
	case "switch":
		return map[string]string{"true": "false", "false": "true"}[p.Default]
	case "choice":
		return p.Choices[(slices.Index(p.Choices, p.Default)+1)%len(p.Choices)]
	}
	v, err := strconv.ParseFloat(p.Default, 64)
	if err != nil {
		panic(err) // of a number it is one
	}
	if p.Kind == "whole" {
		if v+1 > p.Max {
			return strconv.Itoa(int(v) - 1)
		}
		return strconv.Itoa(int(v) + 1)
	}
	if v*1.25 > p.Max || v == 0 {
		return strconv.FormatFloat((p.Min+p.Max)/4, 'f', -1, 64)
	}
	return strconv.FormatFloat(v*1.25, 'f', -1, 64)
}

// set changes a setting in the page and waits for what comes of it.
func (b *tab) set(p param, value string) {
	b.t.Helper()
	b.change(p, value)
	b.stands(p.Key, value)
}

// change changes a setting in the page.
func (b *tab) change(p param, value string) {
	b.t.Helper()
	field := fmt.Sprintf("form.settings [name=%s]", quote(p.Key))
	switch p.Kind {
	case "switch":
		b.click(field)
	case "choice":
		eval[any](b, fmt.Sprintf("(() => {const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event('change', {bubbles: true}));})()", quote(field), quote(value)))
	default:
		b.typeInto(field, value)
	}
}

// stands waits until the page shows the results of a setting.
func (b *tab) stands(key, value string) {
	b.t.Helper()
	b.until(key+"="+value+" is shown", fmt.Sprintf(
		"document.querySelector('main[data-ready=true]') && new URLSearchParams(document.querySelector('a.permalink').hash.split('?')[1]).get(%s) === %s", quote(key), quote(value)))
}

// cell is one of a table in the page.
type cell struct {
	Value, Half *string // as attributes
	Text        string
}

// shown is what the page shows of a lab.
type shown struct {
	Title    string
	Controls []string
	Tables   map[string][][]cell
	Plots    map[string]int // what is drawn in each
	Players  []string
	Problem  string
}

func (b *tab) shown() shown {
	b.t.Helper()
	b.until("the plots are drawn", "[...document.querySelectorAll('figure[data-plot]')].every((f) => f.querySelector('.drawing svg'))")
	return eval[shown](b, `(() => {
	  const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
	  return {
	    title: document.querySelector("main h1").textContent,
	    controls: all("form.settings [name]", (e) => e.name),
	    tables: Object.fromEntries(all("table[data-table]", (t) => [t.dataset.table, [...t.tBodies[0].rows].map((r) =>
	      [...r.cells].map((c) => ({ value: c.dataset.value ?? null, half: c.dataset.half ?? null, text: c.textContent })))])),
	    plots: Object.fromEntries(all("figure[data-plot]", (f) => [f.dataset.plot,
	      [...f.querySelectorAll(":scope .drawing svg :is(path, rect, circle, line)")].filter((e) => { const b = e.getBBox(); return b.width + b.height > 0; }).length])),
	    players: all("section[data-player]", (p) => p.dataset.player),
	    problem: document.querySelector(".problem:not([hidden])")?.textContent ?? "",
	  };
	})()`)
}

// matches reports where the page's tables, plots and players are not the result's.
func (s shown) matches(t *testing.T, r result) {
	t.Helper()
	if s.Problem != "" {
		t.Errorf("the page says: %s", s.Problem)
	}
	if len(s.Tables) != len(r.Tables) || len(s.Plots) != len(r.Plots) || len(s.Players) != len(r.Players) {
		t.Errorf("tables %d, want %d; plots %d, want %d; players %d, want %d",
			len(s.Tables), len(r.Tables), len(s.Plots), len(r.Plots), len(s.Players), len(r.Players))
	}
	for _, table := range r.Tables {
		rows := s.Tables[table.Name]
		if len(rows) != len(table.Rows) {
			t.Errorf("%s: %d rows, want %d", table.Name, len(rows), len(table.Rows))
			continue
		}
		for i, row := range table.Rows {
			if len(rows[i]) != len(row) {
				t.Errorf("%s, row %d: %d cells, want %d", table.Name, i+1, len(rows[i]), len(row))
				continue
			}
			for j, want := range row {
				if err := rows[i][j].is(want, table.Text[i][j]); err != nil {
					t.Errorf("%s, row %d, column %d: %v", table.Name, i+1, j+1, err)
				}
			}
		}
	}
	for _, p := range r.Plots {
		if s.Plots[p.Name] < 3 {
			t.Errorf("plot %s: %d shapes are drawn", p.Name, s.Plots[p.Name])
		}
	}
	for _, p := range r.Players {
		if !slices.Contains(s.Players, p.Name) {
			t.Errorf("the player %s is missing", p.Name)
		}
	}
}

// is compares a cell with its value in JSON, to the bit, and with its text.
func (c cell) is(want any, text string) error {
	if c.Text != text {
		return fmt.Errorf("it reads %q, want %q", c.Text, text)
	}
	if c.Value == nil {
		return fmt.Errorf("no data-value, want %v", want)
	}
	switch want := want.(type) {
	case nil:
		return equal(*c.Value, "")
	case string:
		return equal(*c.Value, want)
	case float64:
		return number(*c.Value, want)
	}
	mean := want.(map[string]any)
	if c.Half == nil {
		return fmt.Errorf("no data-half, want %v", mean)
	}
	return errors.Join(number(*c.Value, mean["mean"].(float64)), number(*c.Half, mean["half_width"].(float64)))
}

func equal(got, want string) error {
	if got != want {
		return fmt.Errorf("data-value %q, want %q", got, want)
	}
	return nil
}

func number(text string, want float64) error {
	if got, err := strconv.ParseFloat(text, 64); err != nil || got != want {
		return fmt.Errorf("%q, want %v", text, want)
	}
	return nil
}

// fewSeeds are as many as a browser repeats a lab here, where it would do so more often.
const fewSeeds = 2

func TestLabs_ShowWhatTheCommandPrints(t *testing.T) {
	bothForms(t, func(t *testing.T, base string) {
		var names []string
		for _, l := range labs(t) {
			names = append(names, l.Name)
			t.Run(l.Name, func(t *testing.T) {
				t.Parallel()
				address, seeds := base+"#/labs/"+l.Name, []string(nil)
				if l.Seeds > fewSeeds && strings.HasSuffix(base, staticFolder) { // a browser is slower
					address += fmt.Sprintf("?seeds=%d", fewSeeds)
					seeds = []string{"--seeds", strconv.Itoa(fewSeeds)}
				}
				b := open(t, desktop, address)
				s := b.shown()
				if !strings.EqualFold(s.Title, l.Title) {
					t.Errorf("title %q, want %q", s.Title, l.Title)
				}
				for _, p := range l.Params {
					if !slices.Contains(s.Controls, p.Key) {
						t.Errorf("no control %s", p.Key)
					}
				}
				s.matches(t, run(t, l.Name, seeds...))
				if len(l.Params) == 0 {
					return
				}
				var flags []string
				if l.Seeds > 0 {
					b.change(param{Key: "seeds", Kind: "whole"}, "1")
					flags = []string{"--seeds", "1"}
				}
				p := l.Params[max(0, slices.IndexFunc(l.Params, func(p param) bool { return p.Kind == "whole" || p.Kind == "number" }))]
				value := p.other()
				b.set(p, value)
				b.shown().matches(t, run(t, l.Name, append(flags, "--set", p.Key+"="+value)...))
			})
		}
		b := open(t, desktop, base+"#/labs")
		list := eval[[]string](b, `[...document.querySelectorAll("main a")].map((a) => a.hash.replace("#/labs/", ""))`)
		if !slices.Equal(list, names) {
			t.Errorf("the list has %v, want %v", list, names)
		}
	})
}

// Over the API and in the browser the same code answers, so it answers with the same bytes.
func TestLabs_InTheBrowser_AnswerWithTheBytesOfTheAPI(t *testing.T) {
	program.Installed(t, "page")
	api := demo(t, "--no-traffic")
	b := open(t, desktop, static(t)+"#/labs")
	bytesOf := func(t *testing.T, question string) (overAPI, inBrowser string) {
		t.Helper()
		resp, err := http.Post(api+"v1/labs", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, status %d: %s", err, resp.StatusCode, body)
		}
		return string(body), eval[string](b, "import('./backend.js').then((m) => m.askText("+question+"))")
	}
	for _, l := range labs(t) {
		t.Run(l.Name, func(t *testing.T) {
			questions := []string{fmt.Sprintf(`{"lab": %q, "seeds": %d}`, l.Name, min(l.Seeds, fewSeeds))}
			if len(l.Params) > 0 {
				p := l.Params[len(l.Params)-1]
				questions = append(questions, fmt.Sprintf(`{"lab": %q, "settings": {%q: %q}, "seeds": %d}`, l.Name, p.Key, p.other(), min(l.Seeds, 1)))
			}
			for _, q := range questions {
				overAPI, inBrowser := bytesOf(t, q)
				if overAPI != inBrowser || !json.Valid([]byte(overAPI)) {
					t.Errorf("%s: %d bytes over the API, %d in the browser, or what they say differs", q, len(overAPI), len(inBrowser))
				}
			}
		})
	}
	list := program.Get(t, api+"v1/labs")
	if text := eval[string](b, `new Promise((resolve, reject) => {
	  const w = new Worker("worker.js");
	  w.onmessage = ({ data }) => { w.terminate(); data.id === 7 && data.error === undefined ? resolve(data.text) : reject(data.error); };
	  w.onerror = reject;
	  w.postMessage({ id: 7, kind: "list" });
	})`); !bytes.Equal(list, []byte(text)) {
		t.Errorf("the list: %d bytes over the API, %d in the browser, or what they say differs", len(list), len(text))
	}
}

// What is wrong with a setting is said in the page, in the words of the command.
func TestLabs_WhenASettingIsWrong_SayWhatIsAllowed(t *testing.T) {
	bothForms(t, func(t *testing.T, base string) {
		b := open(t, desktop, base+"#/labs/knee?wait=-1&wat=2")
		if strings.HasSuffix(t.Name(), "served") {
			b.forgive("422") // the browser logs an answer that refuses
		}
		says := eval[string](b, `document.querySelector("[role=alert]:not([hidden])")?.textContent ?? ""`)
		for _, want := range []string{`wait is "-1"; allowed: a number from 0.01 to 1000`, "wat"} {
			if !strings.Contains(says, want) {
				t.Errorf("the page says %q, want %s", says, want)
			}
		}
	})
}

func TestLabs_ASliderChangesTheTable_AndTheLinkBringsItBack(t *testing.T) {
	bothForms(t, func(t *testing.T, base string) {
		b := open(t, desktop, base+"#/labs/knee")
		before := b.shown()
		eval[any](b, `document.querySelector("form.settings input[type=range]").focus()`)
		b.press(kb.ArrowRight, kb.ArrowRight, kb.ArrowRight)
		value := eval[string](b, `document.querySelector("form.settings [name=wait]").value`)
		if value == "3" {
			t.Fatal("the slider changed nothing")
		}
		b.stands("wait", value)
		after := b.shown()
		after.matches(t, run(t, "knee", "--set", "wait="+value))
		if same(before, after) {
			t.Error("the tables are what they were")
		}
		link := eval[string](b, `document.querySelector("a.permalink").href`)
		b.until("the address is the link", "location.href === document.querySelector('a.permalink').href")
		again := open(t, desktop, link)
		if got := again.shown(); !same(got, after) {
			t.Errorf("the link shows something else:\n%+v\n%+v", got, after)
		}
		if got := eval[string](again, `document.querySelector("form.settings [name=wait]").value`); got != value {
			t.Errorf("wait is %s, want %s", got, value)
		}
	})
}

func TestLabs_TakeATraceOfOnesOwn(t *testing.T) {
	trace, err := filepath.Abs("../../client/workload/trace/testdata/azure_2023_code.csv")
	if err != nil {
		t.Fatal(err)
	}
	bothForms(t, func(t *testing.T, base string) {
		b := open(t, desktop, base+"#/labs/knee")
		before := b.shown()
		b.do(chromedp.SetUploadFiles(chromedp.CSS("form.settings [name=trace]"), []string{trace}))
		want := run(t, "knee", "--trace", trace)
		b.until("the trace's tables are shown", fmt.Sprintf("document.querySelector('main[data-ready=true]') && document.querySelectorAll('table[data-table]').length === %d && document.querySelector('.reproduce').textContent.includes('--trace')", len(want.Tables)))
		after := b.shown()
		after.matches(t, want)
		if same(before, after) {
			t.Error("the tables are what they were")
		}
	})
}

func same(a, b shown) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func TestPlayer_StepsByButtonAndByKey(t *testing.T) {
	bothForms(t, func(t *testing.T, base string) {
		first := true
		for _, l := range labs(t) {
			r := run(t, l.Name)
			if len(r.Players) == 0 {
				continue
			}
			plays := first
			first = false
			t.Run(l.Name, func(t *testing.T) {
				t.Parallel()
				b := open(t, desktop, base+"#/labs/"+l.Name)
				player := fmt.Sprintf("section[data-player=%s]", quote(r.Players[0].Name))
				step := func() int {
					t.Helper()
					return eval[int](b, "Number(document.querySelector("+quote(player+" [data-step]")+").dataset.step)")
				}
				board := func() string {
					return eval[string](b, "document.querySelector("+quote(player+" .boards")+").textContent")
				}
				expect := func(what string, want int) {
					t.Helper()
					if got := step(); got != want {
						t.Errorf("after %s: step %d, want %d", what, got, want)
					}
				}
				do := func(what string) { b.click(player + " [data-do=" + what + "]") }
				expect("the start", 1)
				beginning := board()
				do("next")
				expect("next", 2)
				if board() == beginning {
					t.Error("the second step shows what the first one does")
				}
				do("next")
				do("back")
				expect("next and back", 2)
				do("last")
				last := step()
				if last < 3 {
					t.Errorf("the last step is %d", last)
				}
				do("next")
				expect("next at the end", last)
				do("first")
				expect("first", 1)
				if board() != beginning {
					t.Error("the first step shows something else than at the start")
				}
				do("next")
				if plays { // it takes its time
					do("play")
					b.until("the player goes on by itself", "Number(document.querySelector("+quote(player+" [data-step]")+").dataset.step) >= 4")
					do("play")
				}
				at := step()

				eval[any](b, "document.querySelector("+quote(player)+").focus()")
				b.press(kb.ArrowRight)
				expect("→", at+1)
				b.press(kb.ArrowLeft, kb.ArrowLeft)
				expect("← twice", at-1)
				b.press(kb.End)
				expect("End", last)
				b.press(kb.Home)
				expect("Home", 1)
			})
		}
		if first {
			t.Error("no lab has a player")
		}
	})
}
