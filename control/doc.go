// Package control serves an engine over HTTP: runs, signals, deployments, API keys and an audit log, as
// REST and as JSON-RPC 2.0.
//
//	plane, err := control.New(control.Config{Engine: eng, Keys: []control.Key{
//		{ID: "shop", Secret: os.Getenv("SHOP_KEY"), Scopes: []string{"trigger:write", "runs:read"}},
//	}})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/v1/", plane)                        // an http.Handler
//	go plane.Run(ctx)                                // forgets what is old
//	srv.RegisterOnShutdown(func() { plane.Close() }) // ends long polls and streams
//
// Shutdown of the server does not wait for what RegisterOnShutdown calls. Behind it, call [Plane.Close] again, which waits, and wait for
// [Plane.Run]. Then stop the engine, and close the store.
//
// openapi.yaml in this directory is the contract, and GET /v1/openapi.json serves it. Package client is a
// client in Go. The guide is docs/guides/http.md.
//
// # Keys and namespaces
//
// A request proves who makes it with the secret of a [Key], in the header Authorization: Bearer. New
// writes the keys of [Config] to the store, and an admin makes further ones over HTTP. Of a secret only
// the SHA-256 is stored. Every request reads the record of its key, so a revocation holds for the next
// request to any process.
//
// A key belongs to a [Namespace], a project and an environment. So do the runs that it starts, its
// idempotency keys, its rate and its audit rows. What belongs to another namespace is absent: the answer
// is that for what does not exist. Runs of [Config].Home are those of the host itself. Deployments, engines
// and diagnostics belong to the store as a whole: they are for keys of Home.
//
// # Once
//
// A request with an Idempotency-Key takes effect once. A repetition gets the first answer, from any process,
// for [Config].IdempotencyTTL. A change, its answer and its audit row are one commit: a crash leaves all of
// them or none. Signals, updates and what resumes a hook have an id instead of such a key, and their audit row follows in a commit of
// its own, as that of a purge does: a crash between the two loses the row. A purge, and what makes, rotates or revokes a key, take no
// such key: a repetition is another request. In openapi.yaml, x-weft-key says which operations take one. If a client does not learn
// what became of a request, it sends the same request again.
//
// # Errors
//
// Errors are application/problem+json (RFC 9457) with a code for programs, a message for people, and retry:
// whether to send the request again. Their texts name no other namespace.
//
// # Limits
//
// A key makes [Config].RateLimit requests in a minute, over all processes of the store. A body has at most
// [Config].MaxBody bytes and 30 s to come, and an answer 10 s to be taken, whatever the limits of the host's
// server are. An address may try ten unknown tokens in a second.
package control

// The rest is for those who change this package.
//
// # The packages
//
// Below internal, with arrows that point down (deps_test.go):
//
//   - runs: the operations on runs, their signals, updates, values, streams and hooks, and bulks of them.
//   - deployments: the operations on deployments, and where a run starts.
//   - keyring: whose request one is, how many more may follow, and the operations on keys.
//   - operation: what operations are made of: calls, parameters, answers, problems, pages, waiting, and the commit of a change.
//   - audit: the rows that say who called what, and what writes them.
//   - records: how records of the plane are read and replaced.
//
// This package has the configuration, the way of a request, and the operations that need the plane itself: diagnostics,
// webhooks, those of a world, and the list of the audit.
//
// # How a request is served
//
//  1. ServeHTTP (serve) finds the operation by path and method (route). The table of operations is made
//     of functions like runs.Operations, beside what they do. A row is a route, a method of JSON-RPC and an action
//     of the audit at once.
//  2. The checks follow in this order: https (forwarded), token (keyring), scope (operation, Permits), rate
//     (keyring), media type, size, header (serve), strict JSON and shape (operation). A body is not read before the
//     rate has been counted, but for JSON-RPC, whose requests count. What is refused stores nothing but its audit row.
//  3. The parameters of path, query and body become one JSON object (operation, Gather), as JSON-RPC sends
//     them. From there on (operation, Perform) all transports are alike: the object is decoded into the
//     parameters of the operation, which then runs with a call. A run is looked for in the namespace of the key (runs), so what belongs
//     to another one is not found. Some operations ask for a further scope, such as a signal that starts a run.
//  4. An operation that changes something does so in Call.Mutate (operation): it stages its change, the ledger
//     its answer, and the batch has the audit row too. Those with Operation.Follows call the engine instead, which commits
//     many of them at once (internal/intake, send), and are audited afterwards. A signal takes this way: runs, signals, then
//     Engine.SendSignal.
//  5. An error becomes a problem (operation, Explain), and the answer is written (serve, finish). The audit is told
//     (operation, Call.Audit), and Config.Observe: before the answer, but of a webhook after its handler.
//
// A body of JSON-RPC is taken apart by rpc. Each of its requests is authorised, counted and audited by itself.
//
// # Records
//
// All records are on the engine's store, in the envelopes of internal/record, and their keys begin with ctl:
// (internal/keys, control). keyring has the records of keys and of how many requests they have made, audit the rows, and hits
// the counts of unexpected messages. Golden bytes are in testdata/v1 of each package.
//
// # Goroutines
//
//   - One writes audit rows, while there are any (audit, Auditor), and one unexpected hits (hits, write). Close
//     waits for both.
//   - One looks at the keys of the calls that wait, while there are any (operation, Holds). Close waits for it.
//   - Those of the ledger, which Close ends.
//
// # Locks
//
// Every mutex here is a leaf: who holds one calls no store and no user code.
