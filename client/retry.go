package client

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	mostRetries = 5
	firstPause  = 250 * time.Millisecond // the upper limit of the first pause
	lastPause   = 10 * time.Second       // the upper limit of every pause

	// mostRetryAfter is how long a call waits at most because an answer asks for it.
	mostRetryAfter = 2 * time.Minute
)

// An outcome is how an attempt ended that was not successful.
type outcome struct {
	status     int           // of the answer; 0: there was none
	err        error         // why there was no answer
	retry      string        // what the answer says about a repetition: "never", "same-key", "new-key" or ""
	retryAfter time.Duration // what the answer asks for; 0: it does not
	code       string        // of the answer; CodeBadAnswer: it is not of a control plane
}

// ofPlane reports whether a control plane has answered, and nothing in front of it.
func (o outcome) ofPlane() bool { return o.code != "" && o.code != CodeBadAnswer }

// untouched reports whether the server has certainly not acted on the request.
func (o outcome) untouched() bool {
	if o.status != 0 {
		return o.status >= 300 && o.status < 500 && o.status != http.StatusRequestTimeout || o.status == http.StatusServiceUnavailable && o.ofPlane() && o.code != "outcome_unknown"
	}
	dial, ok := errors.AsType[*net.OpError](o.err)
	return ok && dial.Op == "dial" || unreachable(o.err)
}

// leaves reports whether the call may have taken effect after this attempt, if it may have done so
// before it or not. An answer that refuses the request says of all attempts that they had no
// effect, unless it was given before the server looked for the first attempt's, or by a proxy.
func (o outcome) leaves(unknown bool) bool {
	if !o.untouched() {
		return true
	}
	if !o.ofPlane() {
		return unknown
	}
	switch o.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return false
	}
	return unknown
}

// again decides whether the call is attempted once more after so many failures. A call that is not
// safe to repeat is repeated only if the server has certainly not acted on it.
func (o outcome) again(failures int, safe bool) bool {
	return failures <= mostRetries && o.repeatable() && (safe || o.untouched())
}

// repeatable reports whether another attempt may end differently, and soon.
func (o outcome) repeatable() bool {
	switch {
	case o.status == 0:
		return !unreachable(o.err) && !errors.Is(o.err, errTooLarge)
	case o.retry == "never", o.retryAfter > mostRetryAfter:
		return false
	case o.status == http.StatusRequestTimeout, o.status == http.StatusTooManyRequests:
		return true
	}
	return o.status >= 500 && o.status != http.StatusNotImplemented
}

// unreachable reports whether a request cannot get an answer, however often it is sent: the server
// has another name, another protocol, or a certificate that is not trusted.
func unreachable(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	name, ok := errors.AsType[*net.DNSError](err)
	return ok && name.IsNotFound
}

// pause returns how long to wait after so many failures: what the answer asks for and, on top, a
// random time whose upper limit grows from firstPause to lastPause. random returns one below its
// argument.
func (o outcome) pause(failures int, random func(time.Duration) time.Duration) time.Duration {
	limit := firstPause
	for range failures - 1 {
		limit = min(limit*5/2, lastPause)
	}
	return max(o.retryAfter, 0) + random(limit)
}

// jitter is the random of every call.
func jitter(below time.Duration) time.Duration { return rand.N(below) }

// afterOf returns the time of a Retry-After header: seconds, or a date. It is 0 if there is none
// that can be understood.
func afterOf(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
