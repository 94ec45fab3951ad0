package lab

import (
	"fmt"
	"math"
	"strings"

	"kvasir/selection"
)

// explain says in a sentence or two where the two policies would have a call go, and what that
// trades.
func (d *duel) explain(x *selection.Decision, prompt int) string {
	if x == nil {
		return "it was placed nowhere"
	}
	mine, its := x.Chosen, x.Shadow.Chosen
	name := func(i int) string { return fmt.Sprintf("replica %d", replicaOf(x.Candidates[i].Endpoint)+1) }
	if mine == its {
		s := fmt.Sprintf("both choose %s (%s: %s; %s: %s)", name(mine), x.Policy, x.Reason, x.Shadow.Policy, x.Shadow.Reason)
		if d.seesCaches() {
			s += ", which " + holding(x.Shadow.OverlapTokens[mine], prompt)
		}
		return s + "."
	}
	if x.Shadow.Agrees {
		return fmt.Sprintf("%s chooses %s (%s); to %s %s would be as good (%s).", x.Policy, name(mine), x.Reason, x.Shadow.Policy, name(its), x.Shadow.Reason)
	}
	s := fmt.Sprintf("%s chooses %s (%s), ", x.Policy, name(mine), x.Reason)
	if d.seesCaches() {
		s += "which " + holding(x.Shadow.OverlapTokens[mine], prompt) + " and "
	} else {
		s += "which "
	}
	s += fmt.Sprintf("has %s; %s would choose %s (%s)", moreCalls(x.Candidates[mine].Outstanding-x.Candidates[its].Outstanding), x.Shadow.Policy, name(its), x.Shadow.Reason)
	if d.seesCaches() {
		s += ", which " + holding(x.Shadow.OverlapTokens[its], prompt)
	}
	return s + against(x, mine, its) + "."
}

// seesCaches reports whether one of the two policies goes by what replicas hold.
func (d *duel) seesCaches() bool {
	for _, name := range []string{d.left, d.right} {
		if _, ok := selection.As[selection.OverlapUser](ruleOf(name).Params().New()); ok {
			return true
		}
	}
	return false
}

// holding says what a replica is believed to hold of a prompt.
func holding(tokens, prompt int) string {
	if tokens == 0 {
		return "holds none of its " + decimal(float64(prompt), 0) + " tokens"
	}
	return "holds " + decimal(float64(tokens), 0) + " of its " + decimal(float64(prompt), 0) + " tokens"
}

// moreCalls says how many calls more are under way at one replica than at another one.
func moreCalls(n int) string {
	switch {
	case n == 0:
		return "as many calls under way as the other one"
	case n == 1:
		return "1 call more under way"
	case n == -1:
		return "1 call less under way"
	case n > 0:
		return fmt.Sprintf("%d calls more under way", n)
	}
	return fmt.Sprintf("%d calls fewer under way", -n)
}

// against compares the two choices as the shadow sees them: by the TTFT that it predicts of
// each, else by its scores.
func against(x *selection.Decision, mine, its int) string {
	if p := x.Shadow.Parts; p != nil {
		a, known := predictedOf(p[its])
		b, both := predictedOf(p[mine])
		if known && both {
			return fmt.Sprintf("; it predicts a TTFT of %s s there, %s s here", decimal(a, 2), decimal(b, 2))
		}
	}
	a, b := x.Shadow.Scores[its], x.Shadow.Scores[mine]
	if math.IsNaN(a) || math.IsNaN(b) {
		return ""
	}
	return fmt.Sprintf("; its score is %s there, %s here", decimal(a, 3), decimal(b, 3))
}

// predictedOf adds up the parts that are the TTFT of predicted-ttft.
func predictedOf(parts []selection.Part) (seconds float64, known bool) {
	n := 0
	for _, p := range parts {
		switch p.Name {
		case "backlog_seconds", "prefill_seconds", "start_seconds":
			seconds += p.Value
			n++
		}
	}
	return seconds, n == 3
}

// partsText writes the parts of a score down, each with its unit.
func partsText(parts []selection.Part) string {
	var words []string
	for _, p := range parts {
		name, unit := p.Name, ""
		if i := strings.LastIndexByte(name, '_'); i >= 0 {
			name, unit = strings.ReplaceAll(name[:i], "_", " "), name[i+1:]
		}
		switch unit {
		case "seconds":
			words = append(words, name+" "+decimal(p.Value, 3)+" s")
		case "share":
			words = append(words, name+" "+decimal(100*p.Value, 0)+" %")
		default:
			words = append(words, name+" "+unit+" "+decimal(p.Value, 3))
		}
	}
	return strings.Join(words, ", ")
}
