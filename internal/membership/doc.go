// Package membership has what engines tell each other about themselves: the record that an
// incarnation keeps in the store ([Registration]), and the time that has certainly passed
// ([Witness]). It does no I/O.
package membership
