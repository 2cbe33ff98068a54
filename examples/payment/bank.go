package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A bank charges whenever it is asked to. It stores the key of each charge, so that
// charges can be looked up by key, and refuses a request with a lower token than it has
// seen for that key. It does not treat a second request as the first. But it refunds a
// charge once, however often it is asked to. Some replies and some requests are lost.
type bank struct {
	lose float64

	mu        sync.Mutex // guards what follows
	random    *rand.Rand
	charges   map[string][]string // by key
	fences    map[string]uint64   // the highest token seen, by key
	refunds   map[string]int      // requests for one, by charge
	made      int
	lost      int
	refused   int
	questions int
}

func newBank(lose float64, r *rand.Rand) *bank {
	return &bank{lose: lose, random: r, charges: map[string][]string{}, fences: map[string]uint64{}, refunds: map[string]int{}}
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("X-Effect-Key")
	token, err := strconv.ParseUint(r.Header.Get("X-Fencing-Token"), 10, 64)
	if err != nil || key == "" {
		http.Error(w, "a key and a token, please", http.StatusBadRequest)
		return
	}
	requestLost, replyLost, way := b.fate()
	if requestLost {
		cut(w)
		return
	}
	time.Sleep(way) // even if the client no longer waits
	status, id := b.answer(r.Method, key, token, r.FormValue("charge"))
	if replyLost {
		cut(w)
		return
	}
	w.WriteHeader(status)
	if status == http.StatusOK {
		_ = json.NewEncoder(w).Encode(Receipt{id})
	}
}

// fate decides what is lost of a request, and how long it is on its way.
func (b *bank) fate() (request, reply bool, way time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.random.Float64()
	request, reply = x < b.lose/2, b.lose/2 <= x && x < b.lose
	if request || reply {
		b.lost++
	}
	if way = time.Duration(b.random.IntN(20)) * time.Millisecond; b.random.IntN(10) == 0 {
		way *= 25 // so that it arrives when its sender is dead
	}
	return request, reply, way
}

// answer checks the token, then charges, refunds or looks up: under one lock, so that a
// request that a lookup has fenced off is not admitted.
func (b *bank) answer(method, key string, token uint64, charge string) (status int, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if token < b.fences[key] {
		b.refused++
		return http.StatusConflict, ""
	}
	b.fences[key] = token
	if method == http.MethodGet {
		b.questions++
		if len(b.charges[key]) == 0 {
			return http.StatusNotFound, ""
		}
		return http.StatusOK, b.charges[key][0]
	}
	if method == http.MethodDelete {
		if !slices.Contains(b.charges[key], charge) {
			return http.StatusNotFound, ""
		}
		b.refunds[charge]++
		return http.StatusOK, charge
	}
	if n, _ := strconv.Atoi(key[len(orderPrefix):]); declines(n) {
		return http.StatusPaymentRequired, ""
	}
	b.made++
	id = fmt.Sprintf("ch_%d", b.made)
	b.charges[key] = append(b.charges[key], id)
	return http.StatusOK, id
}

// cut ends the connection without a reply.
func cut(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

// book is what was charged under a key, and how many refunds of the first charge were
// requested.
func (b *bank) book(key string) (charges []string, refunds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if charges = b.charges[key]; len(charges) > 0 {
		refunds = b.refunds[charges[0]]
	}
	return charges, refunds
}

// accounts is how many keys were charged.
func (b *bank) accounts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.charges)
}
