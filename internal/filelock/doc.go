// Package filelock locks files among processes. The operating system releases a lock when the process that holds it ends.
package filelock
