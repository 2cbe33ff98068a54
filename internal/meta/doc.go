// Package meta has the records about a store as a whole: its format and ownership mode (stamp), the
// lowest number that a claim may have (floor), and whether each workflow has its entries in lists
// (lists).
package meta
