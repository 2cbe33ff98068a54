// Package worldstream keeps the streams of the runs of a world: logs of chunks, which any process may append to and
// read. A stream needs its run only to learn whether it has ended or was removed: see world.StandingOf.
package worldstream
