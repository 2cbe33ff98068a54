// Package operation has what all operations of a plane are made of. An [Operation] is one row of the table: a route, a method of
// JSON-RPC and an action of the audit at once. [Act] makes what it does of a function, whose parameters are a struct.
//
// A [Call] is an authorised request by a [Principal], whatever the transport. Its parameters are one JSON object, which is
// read strictly. It ends with an [Answer], or with an error: a [Problem] is answered as it is, and [Explain] makes one of any
// other error. A call that changes something does so in [Call.Mutate]: the change, its audit row and the answer under its
// idempotency key are one commit. Calls that wait or stream do so by [Call.Hold], which ends when the key is revoked.
//
// Nothing here knows which operations there are. They are in the packages that import this one.
package operation
