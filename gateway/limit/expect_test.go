package limit

import "testing"

// TestBook_ATenantsAnswersDoNotThrottleAnother: how long answers are is learned of each scope by
// itself, and of a model's bucket, which all share, one call takes an eighth at the most.
func TestBook_ATenantsAnswersDoNotThrottleAnother(t *testing.T) {
	for _, x := range []struct {
		name          string
		caps          []Rule
		calls, output int
		want          int // of 20 short calls of another tenant
	}{
		{"long answers, beside a tenant's own bucket", []Rule{{Scope{Kind: Tenant, Name: "a"}, Caps{TPM: 30_000}}, {Scope{Kind: Model, Name: "m"}, Caps{}}}, 200, 32_000, 20},
		{"a lie, beside a tenant's own bucket", []Rule{{Scope{Kind: Tenant, Name: "a"}, Caps{TPM: 30_000}}, {Scope{Kind: Model, Name: "m"}, Caps{}}}, 1, 1 << 28, 20},
		{"a lie, in a model's bucket", []Rule{{Scope{Kind: Model, Name: "m"}, Caps{TPM: 30_000}}}, 1, 1 << 28, 7},
	} {
		b := New(0, Config{Rules: x.caps})
		for range x.calls {
			v := b.Take(0, &Caller{Tenant: "b", Model: "m"}, Estimate{Input: 10})
			b.Settle(0, v.Grant, Usage{Input: 10, Output: x.output, Whole: true})
		}
		for _, a := range b.order { // what was used is another matter
			a.tokens.level = a.tokens.full
		}
		let := 0
		for range 20 {
			if b.Take(0, &Caller{Tenant: "a", Model: "m"}, Estimate{Input: 10}).Outcome == Granted {
				let++
			}
		}
		if let != x.want {
			t.Errorf("%s: of 20 short calls without max_tokens %d are let in, want %d", x.name, let, x.want)
		}
	}
}
