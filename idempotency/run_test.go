package idempotency_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

var errBroke = errors.New("no money")

// FEN-11: when Run is called its claim is durable: another process sees it.
func TestClaimIsDurableBeforeRun(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, other := ledger(t, s), ledger(t, s)
		e := &idempotency.Effect[refund, string]{Name: "refund"}
		e.Run = func(ctx context.Context, _ refund) (string, error) {
			if got := state(t, other, key); got != idempotency.StateInProgress {
				t.Errorf("during Run the key is %q", got)
			}
			i := activity.InfoFrom(ctx)
			if k := info(t, other, key); k == nil || i.FencingToken != k.Epoch || i.Attempt != 1 || i.IdempotencyKey != k.Hash || i.Phase != activity.PhaseRun || i.Activity != "refund" || time.Until(i.Deadline) > 30*time.Second || i.Deadline.IsZero() {
				t.Errorf("Run is told %+v, stored is %+v", i, k)
			}
			if a := idempotency.AttemptFrom(ctx); a.Hash != a.Key.Hash() || a.Key.SourceID != key.SourceID || a.Key.Action != "refund" || !strings.HasPrefix(a.EffectID, "eff_") {
				t.Errorf("Run is told %+v", a)
			}
			return "done", nil
		}
		if _, err := e.Do(t.Context(), l, key, one); err != nil {
			t.Error(err)
		}
	})
}

// Section 3, "Run's end", without a Verify: each way in which Run can end.
func TestRunEnds(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name  string
		run   func(ctx context.Context) error
		state idempotency.State
		is    error
	}{
		{"nil", func(context.Context) error { return nil }, idempotency.StateSealed, nil},
		{"no effect", func(context.Context) error { return activity.NoEffect(boom) }, idempotency.StateReleased, boom},
		{"no effect, wrapped", func(context.Context) error { return fmt.Errorf("outer: %w", activity.NoEffect(boom)) }, idempotency.StateReleased, boom},
		{"no effect, permanent", func(context.Context) error { return activity.NoEffect(activity.Permanent(boom)) }, idempotency.StateFailed, idempotency.ErrFailed},
		{"permanent, no effect", func(context.Context) error { return activity.Permanent(activity.NoEffect(boom)) }, idempotency.StateFailed, idempotency.ErrFailed},
		{"permanent", func(context.Context) error { return activity.Permanent(boom) }, idempotency.StateIndeterminate, boom},
		{"another error", func(context.Context) error { return boom }, idempotency.StateIndeterminate, boom},
		{"panic", func(context.Context) error { panic(boom) }, idempotency.StateIndeterminate, boom},
		{"panic with a text", func(context.Context) error { panic("text") }, idempotency.StateIndeterminate, idempotency.ErrIndeterminate},
		{"panic with nil", func(context.Context) error { panic(nil) }, idempotency.StateIndeterminate, idempotency.ErrIndeterminate},
		{"timeout", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, idempotency.StateIndeterminate, activity.ErrTimeout},
		{"timeout, but done", func(ctx context.Context) error { <-ctx.Done(); return nil }, idempotency.StateSealed, nil},
		{"timeout, but no effect", func(ctx context.Context) error { <-ctx.Done(); return activity.NoEffect(boom) }, idempotency.StateReleased, boom},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := ledger(t, exclusiveStore())
				e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(ctx context.Context, _ refund) (string, error) { return "done", c.run(ctx) }}
				r, err := e.Do(t.Context(), l, key, one)
				if !errors.Is(err, c.is) || c.is == nil && (err != nil || r.Result != "done") {
					t.Errorf("got %+v, %v", r, err)
				}
				if got := state(t, l, key); got != c.state {
					t.Errorf("the key is %s, want %s", got, c.state)
				}
				want := map[idempotency.State]idempotency.Decision{
					idempotency.StateSealed: idempotency.DecidedNew, idempotency.StateReleased: idempotency.DecidedReleased,
					idempotency.StateFailed: idempotency.DecidedFailed, idempotency.StateIndeterminate: idempotency.DecidedIndeterminate,
				}[c.state]
				if r.Decision != want || r.EffectID == "" {
					t.Errorf("decided %q with the effect %q, want %q", r.Decision, r.EffectID, want)
				}
				if c.state == idempotency.StateIndeterminate {
					var i *idempotency.IndeterminateError
					if !errors.As(err, &i) || i.EffectID != r.EffectID || i.Attempt != 1 || i.Reason == "" {
						t.Errorf("got %+v", i)
					}
				}
			})
		})
	}
}

// Section 3: a Run that ends its goroutine may have had its effect; whoever waits decides for himself.
func TestGoexit(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		begun, end := make(chan bool), make(chan bool)
		e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) {
			close(begun)
			<-end
			runtime.Goexit()
			return "", nil
		}}
		gone := make(chan bool)
		go func() {
			defer close(gone)
			e.Do(t.Context(), l, key, one)
			t.Error("Do returned")
		}()
		<-begun
		follower := start(t.Context(), l, e, key, one)
		close(end)
		await(t, gone, "end of the goroutine")
		if a := await(t, follower, "answer"); !errors.Is(a.err, idempotency.ErrIndeterminate) {
			t.Errorf("the follower: %+v", a)
		}
		if got := state(t, l, key); got != idempotency.StateIndeterminate {
			t.Errorf("the key is %s", got)
		}
	})
}

// Section 3: a Run that does not return keeps its claim until it does, and the log says so.
func TestRunThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := sharedStore()
		l, other := ledger(t, s, logTo(&j)), ledger(t, s.another())
		e := &idempotency.Effect[refund, string]{Name: "refund", Timeout: time.Minute, Wait: -1, Run: func(context.Context, refund) (string, error) {
			time.Sleep(time.Hour)
			return "late", nil
		}}
		c := start(t.Context(), l, e, key, one)
		const warning = "idempotency: Run does not return, although its timeout has passed; the key stays claimed"
		time.Sleep(2*time.Minute - time.Second)
		if n := len(j.of(warning)); n != 0 {
			t.Errorf("%d warnings", n)
		}
		time.Sleep(30 * time.Minute)
		if n := len(j.of(warning)); n != 1 {
			t.Errorf("%d warnings", n)
		}
		for _, l := range []*idempotency.Ledger{l, other} {
			if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrInProgress) {
				t.Errorf("meanwhile: %v", err)
			}
		}
		if a := <-c; a.err != nil || a.Result != "late" {
			t.Errorf("got %+v", a)
		}
		if r, err := e.Do(t.Context(), other, key, one); err != nil || r.Result != "late" {
			t.Errorf("then: %+v, %v", r, err)
		}
	})
}

// Section 3: what cannot be stored is sealed without the result: it happened.
func TestResultThatCannotBeStored(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, c := range []struct {
			name   string
			result func() any
		}{
			{"not encodable", func() any { return func() {} }},
			{"panics", func() any { return panicsAsJSON{} }},
			{"too large", func() any { return strings.Repeat("x", 1<<20) }},
		} {
			t.Run(c.name, func(t *testing.T) {
				l, runs := ledger(t, s), 0
				e := &idempotency.Effect[refund, any]{Name: "refund", Run: func(context.Context, refund) (any, error) { runs++; return c.result(), nil }}
				k := key
				k.Revision = c.name
				var id string
				for i := range 2 {
					r, err := e.Do(t.Context(), l, k, one)
					var u *idempotency.ResultUnavailableError
					if !errors.As(err, &u) || u.EffectID != r.EffectID || u.Reason == "" || r.SealedAt.IsZero() || r.EffectID == "" || i > 0 && r.EffectID != id {
						t.Errorf("got %+v, %v", r, err)
					}
					id = r.EffectID
				}
				if _, err := e.Lookup(t.Context(), l, k); !errors.Is(err, idempotency.ErrResultUnavailable) {
					t.Errorf("Lookup: %v", err)
				}
				if i := info(t, l, k); i.State != idempotency.StateSealed || i.Unavailable == "" || runs != 1 {
					t.Errorf("%+v after %d runs", i, runs)
				}
			})
		}
		// The largest that fits: the quotes count.
		l := ledger(t, s, func(c *idempotency.Config) { c.MaxResult = 100 })
		for n, fits := range map[int]bool{98: true, 99: false} {
			e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) { return strings.Repeat("x", n), nil }}
			k := key
			k.Revision = fmt.Sprint(n)
			if r, err := e.Do(t.Context(), l, k, one); fits != (err == nil) || fits && len(r.Result) != n {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	})
}

type panicsAsJSON struct{}

func (panicsAsJSON) MarshalJSON() ([]byte, error) { panic("no text") }

// FEN-15: the first caller, too, gets what the record decodes to.
func TestFirstAnswerIsDecoded(t *testing.T) {
	type lossy struct {
		Kept string
		Lost string `json:"-"`
	}
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		e := &idempotency.Effect[refund, *lossy]{Name: "refund", Run: func(context.Context, refund) (*lossy, error) { return &lossy{"kept", "lost"}, nil }}
		for range 2 {
			r, err := e.Do(t.Context(), l, key, one)
			if err != nil || !reflect.DeepEqual(r.Result, &lossy{Kept: "kept"}) {
				t.Errorf("got %+v, %v", r.Result, err)
			}
		}
		// Results without a value are results.
		none := &idempotency.Effect[refund, *lossy]{Name: "nothing", Run: func(context.Context, refund) (*lossy, error) { return nil, nil }}
		for range 2 {
			if r, err := none.Do(t.Context(), l, key, one); err != nil || r.Result != nil || r.SealedAt.IsZero() {
				t.Errorf("got %+v, %v", r, err)
			}
		}
	})
}

// A scrambler is a codec that encrypts, as far as a test needs it.
type scrambler struct {
	name string
	by   byte
}

func (c scrambler) Name() string { return c.name }
func (c scrambler) Encode(_ context.Context, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return c.turn(b), err
}
func (c scrambler) Decode(_ context.Context, b []byte, v any) error {
	return json.Unmarshal(c.turn(b), v)
}
func (c scrambler) turn(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] ^= c.by
	}
	return b
}

// Section 2, Codec: neither the request nor the result is stored in plain; conflicts are told nevertheless, and later
// ledgers read what earlier codecs wrote.
func TestCodecThatEncrypts(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		first := ledger(t, s, func(c *idempotency.Config) { c.Codec = scrambler{"first", 0x5a} })
		g := new(target)
		secret := refund{"secret-payment", 4711}
		if r, err := g.effect().Do(t.Context(), first, key, secret); err != nil || r.Result != "refunded secret-payment" {
			t.Fatalf("%+v, %v", r, err)
		}
		if stored := dump(t, s); strings.Contains(stored, "secret") || strings.Contains(stored, "4711") || strings.Contains(stored, "refunded") {
			t.Errorf("stored in plain: %q", stored)
		}
		later := ledger(t, s, func(c *idempotency.Config) {
			c.Codec, c.Codecs = scrambler{"second", 0x33}, []idempotency.Codec{scrambler{"first", 0x5a}}
		})
		if r, err := g.effect().Do(t.Context(), later, key, secret); err != nil || r.Decision != idempotency.DecidedDuplicate || r.Result != "refunded secret-payment" {
			t.Errorf("with another codec: %+v, %v", r, err)
		}
		_, err := g.effect().Do(t.Context(), later, key, refund{"secret-payment", 1})
		var c *idempotency.ConflictError
		if !errors.As(err, &c) || len(c.Diff) != 1 || c.Diff[0].Path != "/Cents" {
			t.Errorf("another request: %+v, %v", c, err)
		}
		without := ledger(t, s)
		if r, err := g.effect().Do(t.Context(), without, key, secret); !errors.Is(err, idempotency.ErrResultUnavailable) || r.EffectID == "" {
			t.Errorf("without its codec: %+v, %v", r, err)
		}
		if _, err := g.effect().Do(t.Context(), without, key, refund{"p", 1}); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("another request without the codec: %v", err)
		}
		if g.count() != 1 {
			t.Errorf("%d effects", g.count())
		}
	})
}

// A brittle codec panics or fails for some values.
type brittle struct{ scrambler }

func (c brittle) Encode(ctx context.Context, v any) ([]byte, error) {
	b, _ := json.Marshal(v)
	switch {
	case strings.Contains(string(b), "panics"):
		panic("cannot encode")
	case strings.Contains(string(b), "fails"):
		return nil, errBroke
	case strings.Contains(string(b), "inflates"):
		return make([]byte, weft.MaxPayload+1), nil
	}
	return c.scrambler.Encode(ctx, v)
}

func (c brittle) Decode(ctx context.Context, b []byte, v any) error {
	if strings.Contains(string(c.turn(b)), "unreadable") {
		panic("cannot decode")
	}
	return c.scrambler.Decode(ctx, b, v)
}

// A codec that fails or panics: of a request nothing is written, and the request is not to blame; of a result it is sealed without it.
func TestCodecThatFails(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s, func(c *idempotency.Config) { c.Codec = brittle{scrambler{"brittle", 7}} })
		runs := 0
		echo := &idempotency.Effect[refund, string]{Name: "refund", Run: func(_ context.Context, in refund) (string, error) {
			runs++
			return map[int]string{1: "fails", 2: "panics", 3: "unreadable"}[in.Cents], nil
		}}
		for _, payment := range []string{"fails", "panics"} {
			if r, err := echo.Do(t.Context(), l, key, refund{payment, 0}); err == nil || errors.Is(err, idempotency.ErrInvalid) || r.Decision != "" {
				t.Errorf("a request that %s: %+v, %v", payment, r, err)
			}
		}
		if r, err := echo.Do(t.Context(), l, key, refund{"inflates", 0}); !errors.Is(err, idempotency.ErrInvalid) || r.Decision != "" {
			t.Errorf("a request that is too large once it is encoded: %+v, %v", r, err)
		}
		if runs != 0 || strings.Contains(dump(t, s), "idem:") {
			t.Errorf("%d runs; stored: %s", runs, dump(t, s))
		}
		for cents := 1; cents <= 3; cents++ {
			k := key
			k.Revision = fmt.Sprint(cents)
			for range 2 {
				if r, err := echo.Do(t.Context(), l, k, refund{"p", cents}); !errors.Is(err, idempotency.ErrResultUnavailable) || r.EffectID == "" {
					t.Errorf("a result: %+v, %v", r, err)
				}
			}
		}
		if runs != 3 {
			t.Errorf("%d runs", runs)
		}
	})
}

// Section 2, Errors: a *FailedError matches its sentinel in each answer, also from the record; its text is the same.
func TestSentinels(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		g := &target{fail: func(int) error { return activity.NoEffect(activity.Permanent(fmt.Errorf("account 7: %w", errBroke))) }}
		e := g.effect()
		e.Errors = []error{errors.New("another"), errBroke}
		var texts []string
		for range 3 {
			r, err := e.Do(t.Context(), ledger(t, s), key, one)
			var f *idempotency.FailedError
			if !errors.As(err, &f) || !errors.Is(err, errBroke) || f.Sentinel != errBroke || f.EffectID != r.EffectID || r.Decision != idempotency.DecidedFailed {
				t.Errorf("got %+v, %v", r, err)
			}
			texts = append(texts, err.Error())
		}
		if texts[0] != texts[1] || texts[1] != texts[2] || !strings.Contains(texts[0], "account 7: no money") || g.count() != 1 {
			t.Errorf("%q, %d effects", texts, g.count())
		}
		e.Errors = nil
		if _, err := e.Do(t.Context(), ledger(t, s), key, one); errors.Is(err, errBroke) || !errors.Is(err, idempotency.ErrFailed) {
			t.Errorf("without the sentinel: %v", err)
		}
	})
}

// FEN-13: the seal has the final effect id, in each answer; what cannot be one leaves the reserved id.
func TestEffectID(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		for i, c := range []struct {
			id    string
			final bool
		}{{"re_1", true}, {strings.Repeat("x", 200), true}, {"", false}, {strings.Repeat("x", 201), false}, {"\xff", false}, {"a\x00b", false}} {
			e := new(target).effect()
			e.Reserve = func(context.Context, refund) (idempotency.Reservation, error) {
				return idempotency.Reservation{EffectID: "reserved"}, nil
			}
			e.EffectID = func(in refund, out string) string {
				if in != one || out != "refunded p1" {
					t.Errorf("EffectID gets %+v, %q", in, out)
				}
				return c.id
			}
			k := key
			k.Revision = fmt.Sprint(i)
			want := "reserved"
			if c.final {
				want = c.id
			}
			for range 2 {
				if r, err := e.Do(t.Context(), l, k, one); err != nil || r.EffectID != want || r.Result != "refunded p1" {
					t.Errorf("%q: %+v, %v", c.id, r, err)
				}
			}
			if r, err := e.Lookup(t.Context(), l, k); err != nil || r.EffectID != want {
				t.Errorf("%q: Lookup: %+v, %v", c.id, r, err)
			}
		}
	})
}

// FEN-15, section 2, Reserve: of a fresh key, stored with its claim, the same in every attempt; Run and Verify get it.
func TestReserve(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, reserved := ledger(t, s), 0
		var seen []string
		fail := activity.NoEffect(errBroke)
		e := &idempotency.Effect[refund, string]{
			Name: "refund",
			Reserve: func(_ context.Context, in refund) (idempotency.Reservation, error) {
				reserved++
				if in != one {
					t.Errorf("Reserve gets %+v", in)
				}
				return idempotency.Reservation{EffectID: fmt.Sprintf("run-%d", reserved), Data: bytes.Repeat([]byte("d"), 64<<10)}, nil
			},
			Run: func(ctx context.Context, _ refund) (string, error) {
				a := idempotency.AttemptFrom(ctx)
				seen = append(seen, fmt.Sprintf("%s/%d", a.EffectID, len(a.Data)))
				clear(a.Data) // the ledger has a copy of its own
				return "", fail
			},
			Verify: func(ctx context.Context, _ refund) (activity.Verification[string], error) {
				a := idempotency.AttemptFrom(ctx)
				if a.EffectID != "run-1" || len(a.Data) != 64<<10 || a.Data[0] != 'd' || a.Hash != a.Key.Hash() {
					t.Errorf("Verify gets %q with %d bytes", a.EffectID, len(a.Data))
				}
				return activity.Indeterminate[string]("not yet"), nil
			},
			OnAbandoned: idempotency.TakeOver,
		}
		e.Do(t.Context(), l, key, one) // released
		fail = errBroke
		e.Do(t.Context(), l, key, one) // in doubt
		fail = nil
		r, err := e.Do(t.Context(), ledger(t, s), key, one) // taken over
		if err != nil || r.EffectID != "run-1" || r.Attempt != 3 || reserved != 1 || strings.Join(seen, " ") != "run-1/65536 run-1/65536 run-1/65536" {
			t.Errorf("got %+v, %v; %d reservations, %v", r, err, reserved, seen)
		}
	})
}

// Section 3: a released key of which another request comes gets a reservation and attempts of its own.
func TestReserveOfAnotherRequest(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		g := &target{fail: func(n int) error {
			if n == 1 {
				return activity.NoEffect(errBroke)
			}
			return nil
		}}
		first, _ := g.effect().Do(t.Context(), l, key, one)
		r, err := g.effect().Do(t.Context(), l, key, refund{"p1", 200})
		if err != nil || r.Decision != idempotency.DecidedNew || r.EffectID == first.EffectID || r.Attempt != 2 || r.FirstSeen.Before(first.FirstSeen) {
			t.Errorf("first %+v, then %+v, %v", first, r, err)
		}
		if _, err := g.effect().Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("the first request: %v", err)
		}
	})
}

// Section 2, Reserve: "an error writes nothing", and is returned; so is what cannot be stored.
func TestReserveThatFails(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		for name, c := range map[string]struct {
			r   idempotency.Reservation
			err error
			is  error
		}{
			"error":        {err: errBroke, is: errBroke},
			"no id":        {is: idempotency.ErrInvalid},
			"long id":      {r: idempotency.Reservation{EffectID: strings.Repeat("x", 201)}, is: idempotency.ErrInvalid},
			"invalid id":   {r: idempotency.Reservation{EffectID: "\xff"}, is: idempotency.ErrInvalid},
			"NUL in id":    {r: idempotency.Reservation{EffectID: "a\x00"}, is: idempotency.ErrInvalid},
			"large data":   {r: idempotency.Reservation{EffectID: "id", Data: make([]byte, 64<<10+1)}, is: idempotency.ErrInvalid},
			"panic":        {err: errBroke, is: errBroke},
			"id and error": {r: idempotency.Reservation{EffectID: "id"}, err: errBroke, is: errBroke},
		} {
			e := g.effect()
			e.Reserve = func(context.Context, refund) (idempotency.Reservation, error) {
				if name == "panic" {
					panic(c.err)
				}
				return c.r, c.err
			}
			if r, err := e.Do(t.Context(), l, key, one); !errors.Is(err, c.is) || r.Decision != "" {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if stored := dump(t, s); stored != "" || g.count() != 0 {
			t.Errorf("%d effects; stored: %s", g.count(), stored)
		}
		e := g.effect()
		e.Reserve = func(context.Context, refund) (idempotency.Reservation, error) {
			return idempotency.Reservation{EffectID: strings.Repeat("%", 200)}, nil
		}
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.EffectID != strings.Repeat("%", 200) {
			t.Errorf("the longest: %+v, %v", r, err)
		}
	})
}

// Section 3: "Do with the key of the Run that calls it is *InProgressError at once", also with another key in between, and from Verify.
func TestNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		begun := time.Now()
		inner := func(ctx context.Context) error {
			_, err := new(target).effect().Do(ctx, l, key, one)
			return err
		}
		var errs []error
		e := &idempotency.Effect[refund, string]{Name: "refund"}
		e.Run = func(ctx context.Context, _ refund) (string, error) {
			errs = append(errs, inner(ctx))
			k := key
			k.SourceID = "between"
			_, err := idempotency.Do(ctx, l, idempotency.Key{SourceType: "x", SourceID: "y", Action: "z"}, 1, func(ctx context.Context) (string, error) {
				errs = append(errs, inner(ctx))
				_, err := new(target).effect().Do(ctx, l, k, one) // a third key is nobody's
				return "", err
			})
			return "", errors.Join(err, errBroke)
		}
		e.Verify = func(ctx context.Context, _ refund) (activity.Verification[string], error) {
			errs = append(errs, inner(ctx))
			return activity.CompletedWithResult("found"), nil
		}
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Result != "found" {
			t.Errorf("got %+v, %v", r, err)
		}
		if len(errs) != 3 {
			t.Errorf("%d nested calls", len(errs))
		}
		for _, err := range errs {
			var busy *idempotency.InProgressError
			if !errors.As(err, &busy) || busy.RetryAfter <= 0 {
				t.Errorf("nested: %v", err)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// Section 2, Do without an Effect: Hold; the Action is required, and Run is not nil.
func TestInline(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		k, runs := key, 0
		run := func(context.Context) (string, error) { runs++; return "done", nil }
		if _, err := idempotency.Do(t.Context(), l, k, one, run); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("without an Action: %v", err)
		}
		k.Action = "refund"
		if _, err := idempotency.Do[refund, string](t.Context(), l, k, one, nil); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("without a function: %v", err)
		}
		first, err := idempotency.Do(t.Context(), l, k, one, run)
		if err != nil || first.Result != "done" {
			t.Errorf("got %+v, %v", first, err)
		}
		again, err := new(target).effect().Do(t.Context(), l, key, one) // an Effect with that Action has the same key
		if err != nil || again.EffectID != first.EffectID || again.Decision != idempotency.DecidedDuplicate {
			t.Errorf("again: %+v, %v", again, err)
		}
		k.Revision = "fails"
		for range 2 {
			if _, err := idempotency.Do(t.Context(), l, k, one, func(context.Context) (string, error) { runs++; return "", errBroke }); !errors.Is(err, idempotency.ErrIndeterminate) {
				t.Errorf("in doubt: %v", err)
			}
		}
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}

// FEN-1 to FEN-9: the hash is SHA-256 over a tag and the six fields, each with its length; an empty Action is the Effect's Name; nothing else
// counts, neither time nor chance.
func TestHash(t *testing.T) {
	k := idempotency.Key{Tenant: "t", SourceType: "st", SourceID: "id", Revision: "r", IndexHash: "ix", Action: "a"}
	sum := sha256.Sum256([]byte("weft-idem-1\x00\x00\x00\x01t\x00\x00\x00\x02st\x00\x00\x00\x02id\x00\x00\x00\x01r\x00\x00\x00\x02ix\x00\x00\x00\x01a"))
	if got, want := k.Hash(), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[string]bool{k.Hash(): true}
	for i, change := range []func(*idempotency.Key){
		func(k *idempotency.Key) { k.Tenant = "" }, func(k *idempotency.Key) { k.SourceType = "s" }, func(k *idempotency.Key) { k.SourceID = "" },
		func(k *idempotency.Key) { k.Revision = "" }, func(k *idempotency.Key) { k.IndexHash = "" }, func(k *idempotency.Key) { k.Action = "" },
		func(k *idempotency.Key) { k.Tenant, k.SourceType = "ts", "t" }, // where one field ends counts
		func(k *idempotency.Key) { k.Revision, k.IndexHash = "rix", "" },
		func(k *idempotency.Key) { k.Revision, k.IndexHash = "", "rix" },
	} {
		other := k
		change(&other)
		if h := other.Hash(); seen[h] {
			t.Errorf("change %d: the same hash", i)
		} else {
			seen[h] = true
		}
	}
	synctest.Test(t, func(t *testing.T) {
		before := k.Hash()
		time.Sleep(1000 * time.Hour)
		if k.Hash() != before {
			t.Error("the hash depends on the time")
		}
		l := ledger(t, exclusiveStore())
		named := key
		named.Action = "refund"
		first, err := new(target).effect().Do(t.Context(), l, key, one)
		must(t, err)
		again, err := new(target).effect().Do(t.Context(), l, named, one)
		if err != nil || again.EffectID != first.EffectID {
			t.Errorf("with the Action spelt out: %+v, %v", again, err)
		}
		for _, change := range []func(*idempotency.Key){
			func(k *idempotency.Key) { k.Tenant = "other" }, func(k *idempotency.Key) { k.SourceType = "other" }, func(k *idempotency.Key) { k.SourceID = "other" },
			func(k *idempotency.Key) { k.Revision = "other" }, func(k *idempotency.Key) { k.IndexHash = "other" }, func(k *idempotency.Key) { k.Action = "other" },
		} {
			other := key
			change(&other)
			if r, err := new(target).effect().Do(t.Context(), l, other, one); err != nil || r.Decision != idempotency.DecidedNew {
				t.Errorf("%+v is another effect: %+v, %v", other, r, err)
			}
		}
	})
}
