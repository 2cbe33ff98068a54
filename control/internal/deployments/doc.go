// Package deployments has the operations on deployments: their manifests, their artifacts, and which one is active.
// [Deployments.Target] decides where a run starts.
package deployments
