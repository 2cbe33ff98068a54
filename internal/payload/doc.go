// Package payload encodes and decodes what users give to an engine: inputs, results, signals
// and errors. It checks sizes and names, computes digests, and keeps an input as it was when an
// operation was started ([Snapshot]).
package payload
