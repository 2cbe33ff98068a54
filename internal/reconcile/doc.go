// Package reconcile decides what follows each attempt of an activity that has an idempotency
// key, and has the records of such activities ([Record]) and of their progress ([Beat]).
// [Next] decides, without I/O: it gets the policy of the activity, its record and what
// happened, and returns what to do and to record. [Ask] calls a verifier.
package reconcile
