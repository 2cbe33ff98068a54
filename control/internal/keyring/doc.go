// Package keyring knows who may call a plane. A [Keyring] finds the key of a request's secret, bounds how often an address may
// try unknown ones, and counts how many requests a key has made, over all processes of the store. Changes of keys are decided in pure
// functions. The operations on keys are here, too.
//
// Of a secret only the SHA-256 is stored.
package keyring
