// Package client calls a control plane (package control) over HTTP.
//
// A [*Client] is an engine.Client. So definitions work over the wire as they do in process, and
// their errors match the same sentinels and types:
//
//	c, err := client.New("https://shop.internal", os.Getenv("SHOP_KEY"), nil)
//	order, err := checkout.Start(ctx, c, "order-42", cart)
//	_, err = approved.Send(ctx, c, "order-42", by, &signal.Options{ID: "evt_1"})
//	receipt, err := order.Result(ctx)
//
// The other methods are for tools: lists, events, deployments, keys, the audit trail. [Client.Follow] yields the events of
// a run as they happen.
//
// # Retries
//
// A call is attempted up to six times: again after 408, 429, a 5xx status but 501, a broken
// connection and a time-out. All attempts of a call that writes have the same idempotency key,
// and a signal without an ID gets one. So a lost answer is asked for again, and the call takes
// effect once. See [WithIdempotencyKey] to repeat a call after the process has ended.
//
// # Errors
//
// What the control plane has refused is an [*Error]. It unwraps to the error that the engine
// returns in process, such as engine.ErrNotFound, a *engine.TerminalError or a
// *signal.ConflictError. If the context ends first, the error is an *engine.InterruptedError,
// which says whether the call may have taken effect.
package client
