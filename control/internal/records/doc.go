// Package records reads and replaces the records of a plane, whose keys begin with ctl: (internal/keys, control). What they
// contain is defined where they are decided on.
package records
