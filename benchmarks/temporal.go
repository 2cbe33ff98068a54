package main

// Temporal is a server that keeps histories of workflows, here in this process
// with SQLite, with its Go SDK.
var temporalPeer = &Peer{
	Name:      "temporal",
	Tag:       "temporal",
	Stores:    []Store{{Name: "sqlite", Mode: "FULL"}},
	Workloads: workloads,
	Rounds:    2,
	Open:      openTemporal,
}
