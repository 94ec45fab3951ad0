package lab

// Player is a run to be looked at step by step: one board for each variant, all of them on the
// same trace and at the same step.
type Player struct {
	Name   string  `json:"name"` // kebab-case, unique within the result
	Title  string  `json:"title"`
	Step   string  `json:"step"`           // what a step is: request, tick, iteration
	Steps  int     `json:"steps"`          // how many; every board has a frame for each
	Most   float64 `json:"most,omitempty"` // what a lane's bar ends at, on all boards; 0: lanes have no bars
	Boards []Board `json:"boards"`
}

// maxFrames bounds the frames of a player over all its boards: more steps are cut.
const maxFrames = 2000

// maxLanes bounds the lanes of all frames of a player.
const maxLanes = 40_000

// stepsWithin returns how many steps a player may have with so many boards of so many lanes.
func stepsWithin(boards, lanes int) int { return min(maxFrames/boards, maxLanes/(boards*lanes)) }

// Board is one variant's run.
type Board struct {
	Name   string  `json:"name"`
	Frames []Frame `json:"frames"`
	Track  *Track  `json:"track,omitempty"`
}

// Track is a number of every step, drawn below the board with a cursor at the current one.
type Track struct {
	Label  string  `json:"label"`
	Values Numbers `json:"values"`
	Flags  []int   `json:"flags,omitempty"` // steps that stand out, from 0
	Flag   string  `json:"flag,omitempty"`  // why these do
}

// Frame is one step of a board.
type Frame struct {
	Head  string `json:"head"`            // what comes, the same on every board
	Note  string `json:"note"`            // what is done with it here and why, in a sentence
	Lanes []Lane `json:"lanes"`           // the replicas or places, in their order
	Facts []Fact `json:"facts,omitempty"` // where the totals stand
	Grid  *Grid  `json:"grid,omitempty"`  // what somebody sees of it
}

// Lane is a replica, or a place of a batch.
type Lane struct {
	Name  string    `json:"name"`
	State LaneState `json:"state,omitempty"`
	Text  string    `json:"text,omitempty"`  // what it holds or does
	Value float64   `json:"value"`           // the length of its bar
	Fresh float64   `json:"fresh,omitempty"` // of Value, what this step added
}

// LaneState is what becomes of a lane in a step. A page shows it by colour and by mark.
type LaneState string

// The states of lanes.
const (
	Idle    LaneState = "idle"    // nothing to do
	Chosen  LaneState = "chosen"  // the step's call came here
	Hit     LaneState = "hit"     // and found its prefix
	Miss    LaneState = "miss"    // and did not
	Prefill LaneState = "prefill" // a prompt is being computed
	Decode  LaneState = "decode"  // a token is put out
	Stalled LaneState = "stalled" // a token could be put out and is not
)

// Fact is a named number or word of a frame.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Grid is a small table of a frame.
type Grid struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}
