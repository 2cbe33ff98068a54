// Package reconcile decides what follows when the outcome of an attempt with an idempotency key
// is unknown, and has the records of such attempts. [Next] is the whole decision, without I/O:
// from the policy of the activity, its record and what happened, to what is done and recorded
// next. [Ask] calls a verifier.
package reconcile
