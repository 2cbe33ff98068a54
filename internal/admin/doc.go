// Package admin does what clients and operators ask for about workflows that exist: they wait
// for a result, cancel, resolve, resume, purge, inspect, list and export. What changes a
// workflow goes through the loop in package worker (change). audit has who acts and why.
package admin
