// Package idempotency makes an effect happen once for each key, although the request for it comes twice: from clients that
// repeat a request, providers that repeat a webhook, queues that deliver again, jobs that are started again.
//
//	ledger, err := idempotency.New(idempotency.Config{Storage: store})
//	...
//	var refund = &idempotency.Effect[Refund, string]{
//		Name:   "refund",
//		Run:    sendRefund, // gives idempotency.AttemptFrom(ctx).Hash to the provider
//		Verify: findRefund, // asks the provider by that hash, when nobody knows what became of it
//	}
//	...
//	r, err := refund.Do(ctx, ledger, idempotency.Key{Tenant: shop, SourceType: "refund-request", SourceID: id}, req)
//
// For one key at most one result is ever sealed, and whoever asks with the key gets it. An effect of
// unknown fate is not repeated, unless its definition says that this does no harm.
//
// It works on any store of Weft, beside an engine or without one. Subpackage idemhttp guards HTTP
// endpoints, webhook receives webhooks, and consumer processes messages of a queue.
//
// # What happens
//
// A call reads what is known of the key once, and decides:
//
//   - Nothing is known, or the key was released: it commits a claim, calls Run, and commits how that
//     ended.
//   - The key belongs to a request that differs: a *[ConflictError].
//   - It is sealed: the receipt. It has failed: a *[FailedError].
//   - Somebody is at it: the call waits as long as Effect.Wait says, then returns an *[InProgressError].
//   - The process that was at it has died, or nobody knows what became of it: Effect.OnAbandoned decides
//     whether to ask Verify, to run again, or to leave it to a person, with an *[IndeterminateError].
//
// The states of a key:
//
//	in progress    claimed by a holder. If the holder is dead, the claim has lapsed.
//	sealed         it happened, and the result is stored
//	released       nothing happened; the next call runs
//	failed         nothing happened, and no call runs
//	indeterminate  nobody knows whether it happened
//
// Sealed, released and failed keys are forgotten after Effect.Retention. The others stay until they are
// decided: see [Ledger.List] and [Ledger.Resolve].
//
// # What is not promised
//
// A ledger cannot look into a payment provider. Between the effect and its seal a process may die. Give
// the external system the key's hash, and the fencing token if it refuses lower ones; or write to
// a database in the transaction of the seal, with [Ledger.In].
//
// What was forgotten runs again. So keep results for at least twice as long as anybody repeats
// a request: wall clocks err. A process whose clock is ahead forgets too early by as much, and what a process
// has sealed while its clock was behind is forgotten too early by as much, by itself or by another process.
package idempotency

// The rest is for those who change this package.
//
// # How a call is served
//
//  1. Effect.Do checks its arguments and makes a job of them (do, effect). once leads all calls for one key in this process: the
//     others wait for the first.
//  2. The call reads the entry of the key, the order of its source and the lease of its holder (once, situation), and entry.Decide says
//     what follows, without I/O.
//  3. If it may run, it claims the key (attempt, take). The claim is committed under these conditions: the entry is byte for byte
//     as it was read, the lease of this ledger's holder is there, and if the event has an order, that of its source is as it was read.
//  4. Then it calls Verify or Run (attempt, act), and commits how that ended (attempt, finish, record). That
//     commit replaces the entry of the claim, byte for byte (entry.Changing). A claim has a random owner, and no two writes
//     have the same time. So if somebody else has taken the key over, it is refused with ErrFenceLost: two owners never both seal.
//     The lease is not asked for again: while nobody has taken the key over, its owner may seal it.
//  5. A commit of unknown outcome is repeated unchanged until it is certain. If the store takes no end, the
//     caller gets the error after a while, and the ledger tries on in the background (attempt, persist) until it is closed.
//
// In a transaction of the host (tx), claim and end are both part of that transaction, and nobody is waited for. What operators
// see and decide is in operator.
//
// # The packages
//
//   - internal/entry: the records, what they become, and the decisions. It does no I/O.
//   - internal/lease: who holds claims, and whether he is alive.
//   - internal/clock: the wall clock, as far as it is to be believed.
//
// # Goroutines
//
//   - One sweeps: it forgets what has expired, and observes the leases of others (sweep). One renews the lease (lease, renew), on
//     a store that several processes share. One for each claim or end that the
//     store has not taken or answered yet (owe), for each verifier that is asked later (attempt, settleThenAsk), and for each lease of a
//     dead holder that is removed. Close waits for them.
//   - Some that read what a sweep may forget (sweep), which waits for them.
//
// # Locks
//
// The mutex of a ledger, that of lease and that of clock are leaves, but that lease reads the clock while it holds its own.
// None is held during I/O or user code.
