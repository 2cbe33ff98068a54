// Package worldhttp serves a world to its clients over HTTP.
//
// A call is a POST to /v1/world/{area}/{action} with a value in CBOR or JSON, and is answered in either, as its
// Accept header says. No token of a hook and no payload is in a URL, because URLs are logged. Who may call is
// decided by who mounts the handler.
//
// Values of users pass through as the CBOR that came. In JSON, bytes are {"__type":"Uint8Array","data":base64}, and
// dates are text.
package worldhttp
