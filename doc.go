// Package weft has the types that callers, operators and tools of durable workflows exchange:
// requests, states, events and errors. It runs nothing: package engine does. Weft runs durable
// workflows inside your own Go service.
//
// A workflow is an ordinary Go function. The outcome of each of its steps is committed
// to a store of your choice, by compare-and-swap, before the next step starts. If the
// process dies at any point, restart it: the workflow continues where it stopped. There
// is no separate server: a store is a SQLite or bbolt file or a pebble folder beside your
// program, a table in your PostgreSQL, or keys in your etcd cluster.
//
// This is a whole program. Its workflow sleeps and then runs one step. Run it
// twice with the same hello.db, or kill it while it sleeps: the greeting is
// computed once, and the answer stays the same.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//		"time"
//
//		"github.com/weft-go/weft/engine"
//		"github.com/weft-go/weft/storage/sqlite"
//	)
//
//	var hello = &engine.Workflow[string, string]{Name: "hello", Func: func(run *engine.Run, name string) (string, error) {
//		if err := run.Sleep(2 * time.Second); err != nil {
//			return "", err
//		}
//		return engine.Step(run, "greet", func(context.Context) (string, error) { return "hello, " + name, nil })
//	}}
//
//	func main() {
//		ctx := context.Background()
//		store, err := sqlite.Open("hello.db", nil)
//		if err != nil {
//			log.Fatal(err)
//		}
//		eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{hello}})
//		if err != nil {
//			log.Fatal(err)
//		}
//		go eng.Run(ctx)
//		h, err := hello.Start(ctx, eng, "hello-1", "ann")
//		if err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println(h.Result(ctx))
//	}
//
// # What is promised
//
//   - No success is invented. A workflow sees the outcome of a step only after a
//     durable record of it exists, and sees the same outcome in every replay.
//   - A signal is accepted once. If it is sent again with the same ID, the sender gets
//     the first answer, even after a crash, as long as the acceptance is remembered.
//   - Two owners never both commit. An engine claims a run before it executes it, and
//     every write of the owner succeeds only if the claim is still valid.
//   - A store states what it can do. An adapter declares its capabilities, a public
//     test suite proves them, and the engine refuses a store on which it could not keep
//     these promises.
//
// # What is not promised
//
// Weft alone does not make an effect outside the store happen exactly once. The process
// may die after the effect and before the record of it. What follows depends on the
// activity:
//
//   - Without an IdempotencyKey it is attempted again: at least once.
//   - With one, its Verify is called to find out what became of the effect. It is
//     attempted again only if the answer is that the effect did not happen.
//   - If it says that it is Idempotent, and it has no Verify, it is attempted again with
//     the same key.
//
// Give the external system the key, and the fencing token if it can refuse a lower one:
// activity.InfoFrom(ctx) has both.
//
// A workflow function must do the same when it is run again: it gets the time, random
// numbers and external data through its *engine.Run, an activity, a step or a signal.
//
// # Where to go next
//
//   - docs/start.md in the repository builds a shop in six steps, and docs/README.md lists
//     all guides.
//   - Package engine runs workflows; package activity defines steps with external
//     effects, package signal messages to a workflow, and package stream what a workflow
//     shows as it works.
//   - Package control serves an engine over HTTP, and package client calls it from Go.
//   - Package idempotency has an effect take place once for each key, without workflows.
//   - Package world is a back end for workflows in TypeScript.
//   - Packages storage/sqlite and storage/bolt keep a store in a file, storage/postgres
//     in a table, storage/memory in memory. storage/pebble, in a folder, and storage/etcd are
//     modules of their own. To write another, see storage and storage/storagetest.
//   - Package codec/cbor encodes payloads as CBOR instead of JSON.
//   - examples/order is an order that waits for approval and survives being
//     killed; examples/crash kills it hundreds of times and checks what is left.
//   - Package enginetest tests your workflows, in virtual time and with crashes
//     everywhere; examples/crashtest finds a double charge with it.
package weft
