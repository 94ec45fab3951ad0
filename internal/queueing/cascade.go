package queueing

import "kvasir/internal/portable"

// Escalated describes the work of a cascade's large model when the given part of the calls,
// those with the longest service times, is escalated to it and service times are exponential:
// their mean in units of all calls' mean, and their squared coefficient of variation.
//
// An exponential time above a threshold is the threshold plus an exponential time, so
// with the threshold ln(1/share) the mean is 1 + ln(1/share) and the variance stays 1.
//
// Source: article 10.2.
func Escalated(share float64) (mean, cs2 float64) {
	mean = 1 - portable.Ln(share)
	return mean, 1 / float64(mean*mean)
}
