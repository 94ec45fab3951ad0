package lab

import "testing"

// TestThinner_KeepsTheGreatest of every point's steps, within its bound.
func TestThinner_KeepsTheGreatest(t *testing.T) {
	for _, steps := range []int{1, maxPoints - 1, maxPoints, maxPoints + 1, 2 * maxPoints, 2*maxPoints + 1, 10*maxPoints + 7} {
		var th thinner
		values := make([]float64, steps)
		for i := range values {
			values[i] = float64(i * 7919 % 1000)
			th.add(values[i])
		}
		s := th.series("s")
		if len(s.X) > maxPoints || len(s.X) < min(steps, maxPoints/2) || s.X[0] != 0 {
			t.Errorf("%d steps: %d points", steps, len(s.X))
		}
		for i, x := range s.X {
			end := steps
			if i+1 < len(s.X) {
				end = int(s.X[i+1])
			}
			most := 0.0
			for _, v := range values[int(x):end] {
				most = max(most, v)
			}
			if s.Y[i] != most {
				t.Fatalf("%d steps: point %d, of steps %v to %d, is %v, want %v", steps, i, x, end, s.Y[i], most)
			}
		}
	}
}
