package group

import "slices"

// A line is a FIFO queue of tickets.
type line struct {
	tickets []*ticket
	head    int // index of the first ticket that is still waiting
}

func (l *line) push(t *ticket) {
	if l.head > len(l.tickets)/2 {
		l.tickets = slices.Delete(l.tickets, 0, l.head)
		l.head = 0
	}
	l.tickets = append(l.tickets, t)
}

// first returns the ticket that pop would return, or nil.
func (l *line) first() *ticket {
	if l.head == len(l.tickets) {
		return nil
	}
	return l.tickets[l.head]
}

func (l *line) pop() *ticket {
	t := l.first()
	if t != nil {
		l.tickets[l.head] = nil
		l.head++
	}
	return t
}

// remove removes t from any position, and reports whether it was there.
func (l *line) remove(t *ticket) bool {
	i := slices.Index(l.tickets[l.head:], t)
	if i < 0 {
		return false
	}
	l.tickets = slices.Delete(l.tickets, l.head+i, l.head+i+1)
	return true
}
