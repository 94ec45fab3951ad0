package limit

// mean is how long answers are, as an exponential mean, in thousandths of a token.
type mean int64

// Before anything is known, answers are taken to have 256 tokens; each one then has a 32nd of
// the weight.
const (
	firstMean mean = 256 * 1000
	meanShare mean = 32
)

// sharedPart is the part of a model's bucket that the answer of one call reserves at most.
const sharedPart = 8

// expect returns what a call will cost, in units of the scope's bucket: its prompt, and an
// answer as long as the scope's own were in the mean, or as the caller's bound where that is
// less. Each scope learns from its own calls alone, so that nobody's long answers make others
// reserve more. A model's bucket is shared by its tenants, so there an answer is expected to
// take an eighth of it at the most: those of one tenant don't leave the others in single file.
func (a *account) expect(e Estimate) int64 {
	prompt := a.cost(e.Input, 0, 0)
	if e.NoOutput {
		return prompt
	}
	output := int((a.answers + 500) / 1000)
	if e.MaxOutput > 0 {
		output = min(output, e.MaxOutput)
	}
	answer := a.cost(0, 0, output)
	if a.scope.Kind == Model && a.tokens.rate > 0 {
		answer = min(answer, a.tokens.full/sharedPart)
	}
	return prompt + answer
}

func (m *mean) learn(output int) {
	*m += (mean(min(max(output, 0), mostTokens))*1000 - *m) / meanShare
}
