package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// A stage is where a request for a refund is.
type stage int

const (
	before   stage = iota // it has arrived, and nothing has happened
	after                 // the refund is made, and the worker does not know
	answered              // the worker is about to know, and to seal
	inside                // a row is inserted, and the transaction has not ended
)

// A trap holds the next request of a worker at a stage.
type trap struct {
	kind   Kind
	stage  stage
	sprung chan struct{} // closed when there is a request
	loose  chan struct{} // closed when it may go on
	late   time.Duration // after which it goes on; negative: it is lost
}

// set sets a trap for a worker.
func (d *desk) set(worker string, k Kind, s stage, late time.Duration) *trap {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &trap{k, s, make(chan struct{}), make(chan struct{}), late}
	d.traps[worker] = t
	return t
}

// spring holds a request if there is a trap for it. It returns the trap, or nil.
func (d *desk) spring(worker string, k Kind, s stage) *trap {
	d.mu.Lock()
	t := d.traps[worker]
	if t == nil || t.kind != k || t.stage != s {
		d.mu.Unlock()
		return nil
	}
	delete(d.traps, worker)
	d.mu.Unlock()
	close(t.sprung)
	if s != answered {
		<-t.loose
	}
	return t
}

// serveRefund makes a refund, unless the request is lost on its way. It goes on even if the worker
// does not wait any more.
func (d *desk) serveRefund(w http.ResponseWriter, r *http.Request, worker string, c call) {
	d.mu.Lock()
	x, way := d.random.Float64(), time.Duration(d.random.Int64N(int64(2*time.Millisecond)))
	switch d.random.IntN(40) { // some take so long that their callers have left
	case 0:
		way *= 20
	case 1:
		way = time.Duration(d.random.Int64N(max(1, int64(time.Until(c.Deadline.Add(d.settle))))))
	}
	d.arrived(worker, c)
	d.mu.Unlock()
	if x < d.lose/3 {
		lose(w, r, x < d.lose/6)
		return
	}
	if t := d.spring(worker, c.Kind, before); t == nil {
		time.Sleep(way)
	} else if t.late < 0 {
		cut(w)
		return
	} else {
		time.Sleep(t.late)
	}
	if x < d.lose*2/3 {
		w.WriteHeader(http.StatusPaymentRequired)
		return
	}
	number, status := d.apply(c)
	d.spring(worker, c.Kind, after)
	if x < d.lose {
		lose(w, r, x < d.lose*5/6)
		return
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(reply{number})
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	d.spring(worker, c.Kind, answered)
}

// arrived checks the token of a request: it rises with each attempt.
func (d *desk) arrived(worker string, c call) {
	d.counts["requests"]++
	b := d.books[c.Hash]
	d.tell(b, "request of %s, attempt %d, token %d", worker, c.Attempt, c.Token)
	b.tokens[c.Attempt] = max(b.tokens[c.Attempt], c.Token)
	for attempt, token := range b.tokens {
		if attempt < c.Attempt && token >= c.Token || attempt > c.Attempt && token <= c.Token || attempt == c.Attempt && token != c.Token {
			d.violate(b, "attempt %d has token %d, attempt %d has %d", c.Attempt, c.Token, attempt, token)
		}
	}
}

// fences says whether the provider refuses lower tokens than it has seen.
func (d *desk) fences(k Kind) bool {
	return k == fenced || k == held || d.pauses > 0
}

// apply makes a refund.
func (d *desk) apply(c call) (number string, status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.books[c.Hash]
	switch {
	case d.fences(b.kind):
		if c.Token < b.fence {
			d.counts["late requests refused"]++
			return "", http.StatusConflict
		}
		b.fence = c.Token
	case b.kind == verified && time.Until(c.Deadline) < -d.settle*3/4:
		d.counts["late requests refused"]++ // no request is under way for longer than Timeout and Settle
		return "", http.StatusConflict
	}
	if b.kind == repeated && len(b.numbers) > 0 {
		d.counts["known to be the same"]++
		return b.numbers[0], http.StatusOK
	}
	d.counts["refunds"]++
	number = fmt.Sprintf("r%d", d.counts["refunds"])
	b.numbers = append(b.numbers, number)
	d.tell(b, "refunded, attempt %d: %s", c.Attempt, number)
	if len(b.numbers) > 1 {
		d.violate(b, "refunded %d times: %v, the last by attempt %d", len(b.numbers), b.numbers, c.Attempt)
	}
	return number, http.StatusOK
}

// serveFind answers whether a refund was made. Of kinds that fence, later requests with a lower
// token are refused.
func (d *desk) serveFind(w http.ResponseWriter, worker string, c call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts["questions"]++
	if d.random.Float64() < d.lose/6 {
		cut(w)
		return
	}
	b := d.books[c.Hash]
	d.tell(b, "question of %s, token %d: %v", worker, c.Token, b.numbers)
	if d.fences(b.kind) {
		b.fence = max(b.fence, c.Token)
	}
	if len(b.numbers) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(reply{b.numbers[0]})
}

// lose loses a reply: the worker finds its connection cut or, if silent, waits in vain.
func lose(w http.ResponseWriter, r *http.Request, silent bool) {
	if silent {
		select {
		case <-r.Context().Done():
		case <-time.After(stall):
		}
	}
	cut(w)
}

// cut ends the connection without a reply.
func cut(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}
