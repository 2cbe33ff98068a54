// Package enginetest tests workflows: on the real engine, with a store in memory
// and in virtual time, so that a workflow that sleeps for a month is tested in
// milliseconds.
//
//   - [Run] gives a test an engine. It is a testing/synctest bubble.
//   - [CrashEverywhere] plays a scenario repeatedly. Each time the process dies at
//     another call to the store. It reports which external effects happened twice, and
//     where. A [Recorder] records these effects.
//   - [CrashOften] plays it with many crashes in one play, for what is too long for that.
//   - [Replay] checks that today's code still replays histories that were exported
//     before.
//
// Their engines have the default configuration: payloads are JSON. For a codec, and for what else your
// engine.Config has, make an engine in a testing/synctest bubble, as docs/guides/testing.md shows.
package enginetest
