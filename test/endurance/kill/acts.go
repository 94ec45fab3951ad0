package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"kvasir/test/endurance/internal/program"
	"kvasir/test/endurance/internal/report"
)

// floor is the retry budget's default: retries a second that are granted whatever else.
const floor = 10

// full waits until as many calls are in flight as the run is for, and as many wait for
// their first token on the victim. It returns both numbers.
func (k *stage) full(l *load, victim *program.Engine) (inFlight, awaiting int, err error) {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		x, err := k.endpoint(victim)
		if err != nil {
			return 0, 0, err
		}
		all, begun := l.flight(victim.Addr)
		inFlight, awaiting = all, x.InFlight-begun
		if inFlight >= k.o.inFlight && awaiting >= k.o.awaiting && begun > 0 {
			break
		}
	}
	k.rules.Check(inFlight >= k.o.inFlight && awaiting >= k.o.awaiting, "setup", "",
		fmt.Sprintf("%d in flight, %d awaiting their first token on the victim", k.o.inFlight, k.o.awaiting), "%d and %d", inFlight, awaiting)
	return inFlight, awaiting, nil
}

// killEngine kills one engine, and starts it again.
func (k *stage) killEngine() error {
	victim := k.engines[0]
	l := k.load("engine", k.o.clients, false)
	inFlight, awaiting, err := k.full(l, victim)
	if err != nil {
		return err
	}
	_, begun := l.flight(victim.Addr)
	killed := time.Now()
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	gone, state, err := k.until(victim, false, 10*time.Second)
	if err != nil {
		return err
	}
	k.rules.Check(gone <= k.o.gone && state != "in_rotation", "rotation", "", fmt.Sprintf("%s out of rotation within %v", victim.Addr, k.o.gone), "%s after %v", state, gone)
	<-victim.Exited()
	time.Sleep(k.o.hold)
	again, err := k.startEngine(victim.Addr)
	if err != nil {
		return fmt.Errorf("start the engine again: %w", err)
	}
	k.engines[0] = again
	back, state, err := k.until(again, true, 60*time.Second)
	if err != nil {
		return err
	}
	k.rules.Check(state == "in_rotation", "rotation", "", again.Addr+" back in rotation", "%s after %v", state, back)
	time.Sleep(k.o.hold)
	l.halt()
	calls := l.wait()

	fmt.Fprintf(k.out, "\nSIGKILL of an engine: %d calls in flight, on the victim %d awaiting their first token and about %d in their answer\n\n", inFlight, awaiting, begun)
	counts := k.tally(l, calls)
	table := report.NewTable("what", "")
	retried := 0
	for _, c := range calls {
		if recs := k.record(c.id); len(recs) == 1 {
			retried += max(recs[0].Attempts-1, 0)
		}
	}
	table.Row("retries granted", retried)
	table.Row("the victim left rotation after", gone.Round(time.Millisecond))
	table.Row("time from the kill to the new process", again.Started.Sub(killed).Round(time.Millisecond))
	table.Row("it returned, after it listened, in", back.Round(time.Millisecond))
	table.Print(k.out)
	k.rules.Check(counts[failed] == 0 && counts[unanswered] == 0, "before", "", "errors before content from the budget alone", "%d others", counts[failed]+counts[unanswered])
	k.rules.Check(retried >= min(floor, awaiting), "budget", "", fmt.Sprintf("at least %d retries granted", min(floor, awaiting)), "%d", retried)
	k.rules.Check(counts[saved] > 0, "budget", "", "calls saved", "none")
	k.rules.Check(counts[halfQuiet] == 0, "after", "", "a typed error for each answer that was cut", "%d without", counts[halfQuiet])
	k.rules.Check(counts[saved]+counts[refused]+counts[cut]+counts[broken] > 0, "setup", "", "calls that the kill touched", "none")
	return nil
}

// tally counts what became of the calls, and prints it.
func (k *stage) tally(l *load, calls []*call) map[verdict]int {
	counts := map[verdict]int{}
	example := map[verdict]string{}
	for _, c := range calls {
		v, detail := l.judge(c)
		counts[v]++
		if example[v] == "" && detail != "" {
			example[v] = c.id + ": " + detail
		}
		if v == failed || v == halfQuiet {
			rule := map[verdict]string{failed: "before", halfQuiet: "after"}[v]
			k.rules.Check(false, rule, c.id, "no such end", "%s: %s", v, detail)
		}
		if v == broken { // allowed in the middle of an event alone
			body := string(c.result.Body)
			k.rules.Check(len(body) > 0 && body[len(body)-1] != '\n', "after", c.id, "a typed error event where the answer stands between two events", "%s", detail)
		}
		if c.result.Status != 0 {
			n := len(k.record(c.id))
			k.rules.Check(n == 1, "record", c.id, "one record", "%d", n)
		}
	}
	t := report.NewTable("became of it", "calls", "for example")
	t.Row("all", len(calls), "")
	for _, v := range []verdict{whole, saved, refused, failed, cut, broken, halfQuiet, unanswered, unconnected} {
		t.Row(v, counts[v], fmt.Sprintf("%.150s", example[v]))
	}
	t.Print(k.out)
	return counts
}

// drainGateway ends the gateway with SIGTERM under load. Most clients stop when /readyz says
// no, as whoever balances over gateways does; some go on until nobody listens.
func (k *stage) drainGateway() error {
	l := k.load("drain", k.o.clients, false)
	deaf := k.load("deaf", 8, true)
	inFlight, _, err := k.full(l, k.engines[1])
	if err != nil {
		return err
	}
	signalled := time.Now()
	if err := k.gateway.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	unready := time.Duration(0)
	for time.Since(signalled) < 5*time.Second {
		if _, status, err := k.gateway.Get("/readyz"); err == nil && status == http.StatusServiceUnavailable {
			unready = time.Since(signalled)
			break
		}
		time.Sleep(time.Millisecond)
	}
	k.rules.Check(unready > 0, "drain", "", "/readyz says 503 after SIGTERM", "it does not")
	l.halt()
	closed := time.Duration(0)
	for time.Since(signalled) < 20*time.Second {
		conn, err := net.DialTimeout("tcp", k.addr, time.Second)
		if err != nil {
			closed = time.Since(signalled)
			break
		}
		_ = conn.Close() // it was only a look
		time.Sleep(10 * time.Millisecond)
	}
	k.rules.Check(closed > 0, "drain", "", "new connections are refused", "they are not, %v after SIGTERM", time.Since(signalled))
	calls := l.wait()
	ended := time.Since(signalled)
	deaf.halt()
	deafCalls := deaf.wait()
	err = k.gateway.Wait(100 * time.Second)
	exited := time.Since(signalled)
	k.rules.Check(err == nil, "drain", "", "the gateway exits with status 0", "%v", err)

	fmt.Fprintf(k.out, "\nSIGTERM of the gateway: %d calls in flight\n\n", inFlight)
	counts := k.tally(l, calls)
	k.rules.Check(counts[whole]+counts[saved] == len(calls), "drain", "", "every call whole", "%d of %d", counts[whole]+counts[saved], len(calls))
	late, lost := 0, 0
	for _, c := range deafCalls {
		v, detail := deaf.judge(c)
		if v == unconnected || v == unanswered && !k.recorded(c.id) {
			late++ // the system took the connection, the gateway never did
			continue
		}
		if v != whole && v != saved {
			lost++
		}
		k.rules.Check(v == whole || v == saved, "drain", c.id, "whole: the gateway had taken it", "%s: %s", v, detail)
	}
	t := report.NewTable("what", "")
	t.Row("/readyz says 503 after", unready.Round(time.Millisecond))
	t.Row("connections are refused after", closed.Round(time.Millisecond))
	t.Row("the last call ended after", ended.Round(time.Millisecond))
	t.Row("the process exited after", exited.Round(time.Millisecond))
	t.Row("clients that did not look at /readyz: calls, of them lost, not accepted", fmt.Sprintf("%d, %d, %d", len(deafCalls), lost, late))
	t.Print(k.out)
	k.gateway = nil
	return k.startGateway()
}

// recorded reports whether the gateway has a record of the call.
func (k *stage) recorded(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.records[id]) > 0
}

// killGateway kills the gateway under load and starts it again.
func (k *stage) killGateway() error {
	l := k.load("gateway", k.o.clients, false)
	inFlight, _, err := k.full(l, k.engines[2])
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := k.gateway.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-k.gateway.Exited()
	l.halt()
	l.wait()
	idle := time.Duration(0)
	for time.Since(killed) < 10*time.Second {
		n, err := k.work()
		if err != nil {
			return err
		}
		if n == 0 {
			idle = time.Since(killed)
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	k.rules.Check(idle > 0, "abort", "", "no engine works for a gateway that is gone, 10 s later", "some do")
	left, err := os.ReadDir(k.home)
	if err != nil {
		return err
	}
	k.rules.Check(len(left) == 0, "restart", "", "nothing left behind", "%d files: %v", len(left), left)

	began := time.Now()
	k.gateway = nil
	if err := k.startGateway(); err != nil {
		return err
	}
	ready := time.Duration(0)
	for time.Since(began) < 10*time.Second {
		if _, status, err := k.gateway.Get("/readyz"); err == nil && status == http.StatusOK {
			ready = time.Since(began)
			break
		}
		time.Sleep(time.Millisecond)
	}
	k.rules.Check(ready > 0 && ready < time.Second, "restart", "", "/readyz says 200 in under a second", "%v", ready)
	after := k.load("after", k.o.clients/4+1, false)
	time.Sleep(k.o.hold)
	after.halt()
	calls := after.wait()
	fmt.Fprintf(k.out, "\nSIGKILL of the gateway: %d calls in flight; the calls of the next one:\n\n", inFlight)
	counts := k.tally(after, calls)
	k.rules.Check(counts[whole] == len(calls) && len(calls) > 0, "restart", "", "every call whole after the restart", "%d of %d", counts[whole], len(calls))
	t := report.NewTable("what", "")
	t.Row("engines at rest after", idle.Round(time.Millisecond))
	t.Row("from start to /readyz 200", ready.Round(time.Millisecond))
	t.Row("files left behind", len(left))
	t.Print(k.out)
	return nil
}
