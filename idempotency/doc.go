// Package idempotency makes an effect happen once for each key, although the request for it comes
// twice: from clients that repeat a request, providers that repeat a webhook, queues that deliver
// again, jobs that are started again.
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
// a request: wall clocks err, and no two are compared.
package idempotency
