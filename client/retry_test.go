package client

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// What is attempted again, and what is not: 408, 429, 5xx but 501, resets and time-outs are, unless
// the answer says never. A call that is not safe to repeat is repeated only if the server has not
// acted on it.
func TestWhatIsRepeated(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name         string
		o            outcome
		safe, unsafe bool
	}{
		{"400", outcome{status: 400}, false, false},
		{"401", outcome{status: 401}, false, false},
		{"403", outcome{status: 403}, false, false},
		{"404", outcome{status: 404}, false, false},
		{"408", outcome{status: 408}, true, false},
		{"409", outcome{status: 409}, false, false},
		{"413", outcome{status: 413}, false, false},
		{"429", outcome{status: 429}, true, true},
		{"500", outcome{status: 500}, true, false},
		{"500, never", outcome{status: 500, code: "damaged", retry: "never"}, false, false},
		{"501", outcome{status: 501}, false, false},
		{"502", outcome{status: 502}, true, false},
		{"503 of a proxy", outcome{status: 503, code: CodeBadAnswer}, true, false},
		{"503, busy", outcome{status: 503, code: "busy"}, true, true},
		{"503, outcome_unknown", outcome{status: 503, code: "outcome_unknown"}, true, false},
		{"504", outcome{status: 504}, true, false},
		{"a redirect", outcome{status: 307}, false, false},
		{"much later", outcome{status: 429, retryAfter: time.Hour}, false, false},
		{"a reset", outcome{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, true, false},
		{"the end of the connection", outcome{err: io.ErrUnexpectedEOF}, true, false},
		{"nobody listens", outcome{err: dial}, true, true},
		{"a name that is none", outcome{err: &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}}, false, false},
		{"a certificate", outcome{err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}, false, false},
		{"http where https is expected", outcome{err: tls.RecordHeaderError{Msg: "no TLS"}}, false, false},
		{"too large", outcome{err: errTooLarge}, false, false},
	} {
		if got := c.o.again(1, true); got != c.safe {
			t.Errorf("%s: repeated: %v, want %v", c.name, got, c.safe)
		}
		if got := c.o.again(1, false); got != c.unsafe {
			t.Errorf("%s, of a call that is not safe to repeat: repeated: %v, want %v", c.name, got, c.unsafe)
		}
		if c.o.again(mostRetries+1, true) {
			t.Errorf("%s: there is an attempt after %d retries", c.name, mostRetries)
		}
	}
}

// Whether the call may have taken effect: after an attempt without an answer it may, until a later
// answer says that it has not.
func TestWhatIsUnknown(t *testing.T) {
	lost, busy := outcome{err: io.EOF}, outcome{status: 503, code: "busy"}
	for _, c := range []struct {
		name string
		all  []outcome
		want bool
	}{
		{"nobody listens", []outcome{{err: &net.OpError{Op: "dial"}}}, false},
		{"busy", []outcome{busy}, false},
		{"lost", []outcome{lost}, true},
		{"too large an answer", []outcome{{err: errTooLarge}}, true},
		{"lost, busy", []outcome{lost, busy}, true},
		{"lost, the key is revoked", []outcome{lost, {status: 401}}, true},
		{"lost, too many", []outcome{lost, {status: 429}}, true},
		{"lost, refused", []outcome{lost, {status: http.StatusConflict, code: "run_exists"}}, false},
		{"lost, 404 of a proxy", []outcome{lost, {status: http.StatusNotFound, code: CodeBadAnswer}}, true},
		{"lost, 409 of a proxy", []outcome{lost, {status: http.StatusConflict, code: CodeBadAnswer}}, true},
		{"lost, 410 of a proxy", []outcome{lost, {status: http.StatusGone}}, true},
		{"503 of a proxy", []outcome{{status: 503, code: CodeBadAnswer}}, true},
		{"unknown", []outcome{{status: 503, code: "outcome_unknown"}}, true},
		{"a proxy", []outcome{{status: 502}}, true},
	} {
		got := false
		for _, o := range c.all {
			got = o.leaves(got)
		}
		if got != c.want {
			t.Errorf("%s: unknown: %v, want %v", c.name, got, c.want)
		}
	}
}

// Pauses are random, and their limit grows from 0.25 s to 10 s. What an answer asks for is waited
// for in any case.
func TestPauses(t *testing.T) {
	most := func(below time.Duration) time.Duration { return below }
	none := func(time.Duration) time.Duration { return 0 }
	before := time.Duration(0)
	for n := 1; n <= mostRetries; n++ {
		p := outcome{}.pause(n, most)
		if p <= before || p > lastPause || n == 1 && p != firstPause {
			t.Errorf("after %d failures the limit is %v, and %v before", n, p, before)
		}
		if got := (outcome{}).pause(n, none); got != 0 {
			t.Errorf("after %d failures at least %v", n, got)
		}
		if got := (outcome{retryAfter: 7 * time.Second}).pause(n, none); got != 7*time.Second {
			t.Errorf("with Retry-After: 7: %v", got)
		}
		before = p
	}
	if got := (outcome{}).pause(20, most); got != lastPause {
		t.Errorf("at last it is %v, want %v", got, lastPause)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 29, 10, 0, 0, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "x": 0, "99999999999999999999": 0,
		"Wed, 29 Jul 2026 10:00:05 GMT": 5 * time.Second, "Wed, 29 Jul 2026 09:00:05 GMT": 0,
	} {
		if got := afterOf(http.Header{"Retry-After": {v}}, now); got != want {
			t.Errorf("Retry-After: %q: %v, want %v", v, got, want)
		}
	}
}
