package engine

// An admin does what clients and operators ask for about workflows that exist.
type admin struct{ *worker }
