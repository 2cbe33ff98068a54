// Package apitest tests the control plane against its document, control/openapi.yaml, and against clients
// that are not Weft's. It is a module of its own, so that nobody else depends on its tools.
//
// TestGenerated compares what is generated from the document with what is committed. After a change of the
// document:
//
//	go test -C internal/apitest -run TestGenerated -update .
package apitest
