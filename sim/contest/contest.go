// Package contest is pure and stands over all layers: it sets policies beside each other on
// many pools and workloads. A Cell is a pool with a workload, an Entrant a policy with its
// parameters. What is asked of each is its goodput, with the same seeds and so on the same
// calls as all others of the cell, and how it does at one common rate. Report says what came
// of it, and which of the bars hold that the default policy is held to.
//
// Nothing here runs at the same time as anything else: whoever has several cores calls the
// methods of Cell for several cells and entrants at once, which share nothing that changes.
package contest

import "math"

// nan is what is not known.
var nan = math.NaN()
