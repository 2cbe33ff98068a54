// Package natstest tests package consumer with NATS JetStream. It is a module of its own, so that
// the library does not depend on NATS.
//
// The broker runs in the test's process, and so does the carrier, which counts what it was told to
// ship. The consumer is a process of its own, with a ledger in SQLite. It is killed.
package natstest
