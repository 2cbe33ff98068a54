// Package enginetest tests workflows: on the real engine, with a store in memory
// and in virtual time, so that a workflow that sleeps for a month is tested in
// milliseconds.
//
//   - [Run] gives a test an engine. It is a testing/synctest bubble.
//   - [CrashEverywhere] plays a scenario again and again, each time with the
//     process dying at another call to the store, and tells which effects on the
//     world outside were had twice, and where. A [Recorder] stands at the edge of
//     that world.
//   - [Replay] tells whether the code of today still goes through histories that
//     were exported before.
package enginetest
