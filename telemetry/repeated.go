package telemetry

// Repeated is the sign by which a call shows that its client has sent it before.
type Repeated uint8

// The signs.
const (
	NotRepeated   Repeated = iota
	RepeatedCount          // the SDK's retry count is above 0
	RepeatedKey            // an idempotency key that was there lately

	repeateds
)

var repeatedNames = [repeateds]string{"", "retry_count", "idempotency_key"}

// String returns the sign's name as the metrics show it.
func (r Repeated) String() string { return repeatedNames[r] }
