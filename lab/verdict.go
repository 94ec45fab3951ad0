package lab

import (
	"fmt"
	"math"
	"strings"

	"kvasir/internal/stats"
)

// Outcome says what became of a claim.
type Outcome string

// The outcomes.
const (
	Equals      Outcome = "equals"        // our figures, rounded as the article prints them, are the article's
	Holds       Outcome = "holds"         // the article states an order or a shape, and we find it
	DoesNotHold Outcome = "does not hold" // we find something else
)

// Verdict is what a run says of one claim of the article.
type Verdict struct {
	Section string  `json:"section"` // of the article
	Claim   string  `json:"claim"`
	Outcome Outcome `json:"outcome"`
	Article string  `json:"article,omitempty"` // its figures; none where it states an order
	Ours    string  `json:"ours"`              // our figures
	Cause   string  `json:"cause,omitempty"`   // why a claim does not hold
}

// figure is a number of the article beside ours.
type figure struct {
	article, ours float64
	digits        int    // behind the decimal point, as the article prints it
	unit          string // behind the number
}

// equals judges a claim by its figures: each of ours, rounded as the article's is printed,
// must be the article's.
func equals(section, claim string, figures ...figure) Verdict {
	v := Verdict{Section: section, Claim: claim, Outcome: Equals}
	var article, ours []string
	for _, f := range figures {
		a, o := decimal(f.article, f.digits)+f.unit, decimal(f.ours, f.digits)+f.unit
		if a != o {
			v.Outcome = DoesNotHold
		}
		article, ours = append(article, a), append(ours, o)
	}
	v.Article, v.Ours = strings.Join(article, ", "), strings.Join(ours, ", ")
	return v
}

// holds judges a claim that is true or not, whatever the seed.
func holds(section, claim string, ok bool, ours string) Verdict {
	v := Verdict{Section: section, Claim: claim, Outcome: Holds, Ours: ours}
	if !ok {
		v.Outcome = DoesNotHold
	}
	return v
}

// about judges a claim whose figure the article calls approximate: ours may differ by a tenth.
func about(section, claim string, article, ours float64, digits int, unit string) Verdict {
	v := holds(section, claim, math.Abs(ours-article) <= math.Abs(article)/10, decimal(ours, digits)+unit)
	v.Article = "about " + decimal(article, digits) + unit
	return v
}

// within judges a figure of a run that the article does not publish: ours, a mean over seeds,
// may differ by the tolerance.
func within(section, claim string, article float64, ours []float64, tolerance float64, digits int, unit string) Verdict {
	mean, _ := stats.Interval(ours)
	v := holds(section, claim, math.Abs(mean-article) <= tolerance, fmt.Sprintf("%s%s, %s to %s was allowed",
		Mean(ours, digits), unit, decimal(article-tolerance, digits), decimal(article+tolerance, digits)))
	v.Article = decimal(article, digits) + unit
	return v
}

// above judges the claim that one quantity is greater than another, by the differences of
// pairs, one a seed: their mean must be positive by more than half of its 95 % interval.
// With one seed the sign decides.
func above(section, claim string, more, less []float64, digits int, unit string) Verdict {
	differences, won := pairs(more, less)
	mean, half := stats.Interval(differences)
	sure := mean
	if !math.IsNaN(half) {
		sure = mean - half
	}
	return holds(section, claim, sure > 0, fmt.Sprintf("difference %s%s, in %d of %d seeds",
		Mean(differences, digits), unit, won, len(differences)))
}

// near judges the claim that two quantities are about the same, by the differences of
// pairs, one a seed: their mean must be within the tolerance.
func near(section, claim string, a, b []float64, tolerance float64, digits int, unit string) Verdict {
	differences, _ := pairs(a, b)
	mean, _ := stats.Interval(differences)
	return holds(section, claim, math.Abs(mean) <= tolerance, fmt.Sprintf("difference %s%s, at most %s was allowed",
		Mean(differences, digits), unit, decimal(tolerance, digits)))
}

// pairs returns a - b by seed, and in how many a is greater.
func pairs(a, b []float64) (differences []float64, won int) {
	differences = make([]float64, len(a))
	for i := range a {
		differences[i] = a[i] - b[i]
		if a[i] > b[i] {
			won++
		}
	}
	return differences, won
}

// because gives a claim that does not hold its cause.
func (v Verdict) because(cause string) Verdict {
	if v.Outcome == DoesNotHold {
		v.Cause = cause
	}
	return v
}
