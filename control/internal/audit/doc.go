// Package audit has the rows that say who called which operation, and writes them. A row of a change is part of its
// commit. Of all others, an [Auditor] writes many at once, soon after the call, and counts refusals of one kind in one row, so that
// nobody can fill the store with them.
package audit
