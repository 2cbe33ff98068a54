// Package control serves an engine over HTTP: runs, signals, deployments, keys and audit, as REST and as
// JSON-RPC 2.0.
package control
