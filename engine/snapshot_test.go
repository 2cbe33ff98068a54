package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

// onEachStore runs f on a store of each kind that needs no server, in virtual time; and
// on PostgreSQL alone if TestOnPostgres repeats the test.
func onEachStore(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	if repeating {
		virtual(t, func(t *testing.T) { f(t, fresh(t)) })
		return
	}
	for name, open := range map[string]func(path string) (storage.Storage, error){
		"memory": func(string) (storage.Storage, error) { return new(memory.Store), nil },
		"sqlite": func(path string) (storage.Storage, error) { return stored(sqlite.Open(path, nil)) },
		"bolt":   func(path string) (storage.Storage, error) { return stored(bolt.Open(path, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s, err := open(filepath.Join(t.TempDir(), "store"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				f(t, s)
			})
		})
	}
}

// A hotel is what calls share with their workflow: by its pointer, and by its slice.
type hotel struct {
	Name   string
	Guests []string
}

func (h hotel) String() string { return h.Name + " for " + strings.Join(h.Guests, " and ") }

// spoil changes everything that a hotel shares.
func (h *hotel) spoil() {
	h.Name = "spoilt"
	if len(h.Guests) > 0 {
		h.Guests[0] = "nobody"
	}
}

// Three calls with one pointer, and each is undone with what it was begun with: whether
// the workflow waits for it or not, and also by an owner that has replayed it. What the
// workflow does to a result changes nothing that is undone either.
func TestCallsWithOnePointer(t *testing.T) {
	for _, dies := range []bool{false, true} {
		for how, book := range map[string]func(a *activity.Activity[*hotel, *hotel], run *engine.Run, h *hotel) (*hotel, error){
			"Do": func(a *activity.Activity[*hotel, *hotel], run *engine.Run, h *hotel) (*hotel, error) {
				return a.Do(run, h)
			},
			"Go": func(a *activity.Activity[*hotel, *hotel], run *engine.Run, h *hotel) (*hotel, error) {
				f := a.Go(run, h)
				h.spoil()
				return f.Get(run)
			},
		} {
			t.Run(fmt.Sprintf("%s, dies %v", how, dies), func(t *testing.T) {
				onEachStore(t, func(t *testing.T, s storage.Storage) {
					var done tally
					a := &activity.Activity[*hotel, *hotel]{
						Name: "book",
						Run: func(_ context.Context, h *hotel) (*hotel, error) {
							done.add("book " + h.String())
							booked := &hotel{"room in " + h.Name, slices.Clone(h.Guests)}
							h.spoil()
							return booked, nil
						},
						Compensate: func(_ context.Context, h, booked *hotel) error {
							done.add("cancel " + h.String() + ", " + booked.String())
							h.spoil()
							booked.spoil()
							return nil
						},
					}
					wf := flow("trip", func(run *engine.Run) (string, error) {
						h := new(hotel)
						for _, name := range []string{"Ritz", "Plaza", "Savoy"} {
							h.Name, h.Guests = name, []string{"ann", "bob"}
							booked, err := book(a, run, h)
							if err != nil {
								return "", err
							}
							booked.spoil()
						}
						if err := run.Sleep(3 * time.Minute); err != nil {
							return "", err
						}
						return "", errBroke
					})
					p := boot(t, s, wf)
					h := start(t, wf, p, "o", "")
					time.Sleep(time.Minute)
					if dies {
						p.kill()
						p = boot(t, s, wf)
						h = wf.Handle(p, "o")
					}
					failure(t, h, "broke")
					var want []string
					for _, name := range []string{"Ritz", "Plaza", "Savoy"} {
						want = append(want, "book "+name+" for ann and bob")
					}
					for _, name := range []string{"Savoy", "Plaza", "Ritz"} {
						want = append(want, fmt.Sprintf("cancel %s for ann and bob, room in %[1]s for ann and bob", name))
					}
					if got := done.all(); !slices.Equal(got, want) {
						t.Errorf("done:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					p.stop(t)
				})
			})
		}
	}
}

// The content of a call is that of its key, in every attempt and for the verifier, also
// if another call was begun with the same pointer before the first one left.
func TestKeyAndContentAreOfOneMoment(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		var done tally
		a := &activity.Activity[*hotel, string]{
			Name:           "book",
			Retry:          activity.Retry{MaxAttempts: 3},
			IdempotencyKey: func(h *hotel) string { return h.Name },
			Run: func(ctx context.Context, h *hotel) (string, error) {
				i := activity.InfoFrom(ctx)
				done.add(fmt.Sprintf("%s %d: %v", i.IdempotencyKey, i.Attempt, h))
				h.spoil()
				if i.Attempt == 1 {
					return "", errBroke
				}
				return i.IdempotencyKey, nil
			},
			Verify: func(ctx context.Context, h *hotel) (activity.Verification[string], error) {
				done.add(fmt.Sprintf("%s ?: %v", activity.InfoFrom(ctx).IdempotencyKey, h))
				h.spoil()
				return activity.NotCompleted[string](), nil
			},
			SettleAfterError: true,
		}
		wf := flow("trip", func(run *engine.Run) (string, error) {
			h := &hotel{"Ritz", []string{"ann"}}
			one := a.Go(run, h)
			h.Name, h.Guests[0] = "Plaza", "bob"
			two := a.Go(run, h)
			h.spoil()
			all, err := engine.All(run, one, two)
			return strings.Join(all, ", "), err
		})
		p := boot(t, s, wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "Ritz, Plaza" {
			t.Errorf("result %q", got)
		}
		for _, want := range []string{
			"Ritz 1: Ritz for ann", "Ritz ?: Ritz for ann", "Ritz 2: Ritz for ann",
			"Plaza 1: Plaza for bob", "Plaza ?: Plaza for bob", "Plaza 2: Plaza for bob",
		} {
			if done.of(want) == 0 {
				t.Errorf("never: %q; done %q", want, done.all())
			}
		}
		if n := strings.Count(sprint(done.all()), "spoilt"); n > 0 {
			t.Errorf("%d times what was done to an input was seen: %q", n, done.all())
		}
		p.stop(t)
	})
}

// What an attempt does to its input the workflow does not see: neither when it is run
// nor in a replay, in which it is not.
func TestAttemptThatChangesItsInput(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		a := &activity.Activity[[]string, []string]{Name: "rank", Run: func(_ context.Context, items []string) ([]string, error) {
			slices.Sort(items)
			return items, nil
		}}
		var seen []string
		wf := flow("w", func(run *engine.Run) (string, error) {
			items := []string{"c", "a", "b"}
			ranked, err := a.Do(run, items)
			if err != nil {
				return "", err
			}
			seen = append(seen, sprint(items, ranked))
			return sprint(items, ranked), run.Sleep(3 * time.Minute)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "[c a b] [a b c]" || len(seen) != 2 || seen[0] != seen[1] {
			t.Errorf("result %q; it saw %q", got, seen)
		}
		p.stop(t)
	})
}

// What two branches of one workflow share, one of them may change while the other one
// waits for a call, a send or a child: what these were begun with stays.
func TestBranchChangesWhatAnotherHasSent(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		word := &signal.Signal[*hotel]{Name: "word"}
		a := &activity.Activity[*hotel, string]{Name: "book", Run: func(_ context.Context, h *hotel) (string, error) { return h.String(), nil }}
		kid := &engine.Workflow[*hotel, string]{Name: "kid", Func: func(_ *engine.Run, h *hotel) (string, error) { return h.String(), nil }}
		wf := flow("w", func(run *engine.Run) (string, error) {
			h := &hotel{"Ritz", []string{"ann"}}
			began := []*future.Future[string]{
				engine.Go(run, "call", func(run *engine.Run) (string, error) { return a.Do(run, h) }),
				engine.Go(run, "child", func(run *engine.Run) (string, error) { return kid.Do(run, h) }),
				engine.Go(run, "send", func(run *engine.Run) (string, error) {
					if err := word.SendFrom(run, run.ID(), h); err != nil {
						return "", err
					}
					got, err := word.Receive(run)
					return got.String(), err
				}),
				engine.Go(run, "spoil", func(*engine.Run) (string, error) { h.spoil(); return h.String(), nil }),
			}
			all, err := engine.All(run, began...)
			return strings.Join(all, ", "), err
		})
		p := boot(t, s, wf, kid)
		want := "Ritz for ann, Ritz for ann, Ritz for ann, spoilt for nobody"
		if got := result(t, start(t, wf, p, "o", "")); got != want {
			t.Errorf("result %q, want %q", got, want)
		}
		p.stop(t)
	})
}

// What a function has returned is its result, whatever its branches still do to it.
func TestResultIsWhatWasReturned(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		kid := flow("kid", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Minute) }).
			AsChild(engine.ChildOptions{OnParentEnd: engine.ParentEndAwait})
		wf := &engine.Workflow[*hotel, *hotel]{Name: "w", Func: func(run *engine.Run, h *hotel) (*hotel, error) {
			kid.Go(run, "")
			engine.Go(run, "soon", func(*engine.Run) (int, error) { h.spoil(); return 0, nil })
			engine.Go(run, "late", func(run *engine.Run) (int, error) {
				err := run.Sleep(time.Second)
				h.spoil()
				return 0, err
			})
			return h, nil
		}}
		p := boot(t, s, wf, kid)
		if got := result(t, start(t, wf, p, "o", &hotel{"Ritz", []string{"ann"}})); got.String() != "Ritz for ann" {
			t.Errorf("result %v", got)
		}
		p.stop(t)
	})
}

// Map begins its branches with the elements that it was given, also those that have to
// wait for others; and the outcome of a future is the same whenever it is asked for.
func TestElementsAndOutcomesStay(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a := &activity.Activity[string, []string]{Name: "a", Run: func(_ context.Context, s string) ([]string, error) { return []string{s}, nil }}
		wf := flow("w", func(run *engine.Run) (string, error) {
			in := []string{"a", "b", "c"}
			got, err := engine.Map(run, "m", 1, in, func(run *engine.Run, s string) (string, error) {
				f := a.Go(run, s)
				one, err := f.Get(run)
				if err != nil {
					return "", err
				}
				one[0] = "spoilt"
				two, err := f.Get(run)
				slices.Sort(in)
				in[1], in[2] = "spoilt", "spoilt"
				return two[0], err
			})
			return strings.Join(got, " "), err
		})
		for _, codec := range []engine.Codec{engine.JSON, raw{codec("raw")}} {
			p := boot(t, fresh(t), wf, func(c *engine.Config) { c.Codec = codec })
			if got := result(t, start(t, wf, p, "o", "")); got != "a b c" {
				t.Errorf("%s: result %q", codec.Name(), got)
			}
			p.stop(t)
		}
	})
}

// A raw codec keeps bytes, and gives out what it was given.
type raw struct{ engine.Codec }

func (r raw) Encode(ctx context.Context, v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	return r.Codec.Encode(ctx, v)
}

func (r raw) Decode(ctx context.Context, data []byte, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data
		return nil
	}
	return r.Codec.Decode(ctx, data, v)
}

// A codec that hands its bytes on does not make an input, or an outcome, shared.
func TestCodecThatSharesItsBytes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var done tally
		a := &activity.Activity[[]byte, []byte]{
			Name:  "a",
			Retry: activity.Retry{MaxAttempts: 2},
			Run: func(ctx context.Context, in []byte) ([]byte, error) {
				done.add("run " + string(in))
				in[0] = 'X'
				if activity.InfoFrom(ctx).Attempt == 1 {
					return nil, errBroke
				}
				return in, nil
			},
			Compensate: func(_ context.Context, in, out []byte) error {
				done.add("undo " + string(in) + " " + string(out))
				return nil
			},
		}
		wf := flow("w", func(run *engine.Run) (string, error) {
			in := []byte("in")
			f := a.Go(run, in)
			in[0] = 'Y'
			out, err := f.Get(run)
			if err != nil {
				return "", err
			}
			out[0] = 'Z'
			again, err := f.Get(run)
			done.add("got " + string(again))
			return "", errors.Join(err, errBroke)
		})
		p := boot(t, fresh(t), wf, func(c *engine.Config) { c.Codec = raw{codec("raw")} })
		failure(t, start(t, wf, p, "o", ""), "broke")
		if got, want := done.all(), []string{"run in", "run in", "got Xn", "undo in Xn"}; !slices.Equal(got, want) {
			t.Errorf("done %q, want %q", got, want)
		}
		p.stop(t)
	})
}

type scalars struct {
	N    int
	S    string
	At   time.Time
	Inch [2]float64
	kept string // no codec sees it
}

// An input is what it was, of whatever type: also behind an interface, nil, or empty.
// What cannot be shared is not even encoded.
func TestInputsOfAllTypes(t *testing.T) {
	one := 1
	inputs := []any{
		nil, 7, "s", 1.5, true, [2]string{"a", "b"}, struct{}{},
		scalars{1, "s", time.Unix(1, 2), [2]float64{1, 2}, "kept"},
		[]string(nil), []string{}, []string{"a"}, []byte("raw"), map[string]int(nil), map[string]int{}, map[string]int{"a": 1},
		(*hotel)(nil), &hotel{"Ritz", nil}, hotel{"Ritz", []string{}}, hotel{"Ritz", []string{"ann"}}, &one,
		[]any{"a", 1.5, nil, map[string]any{"b": true}}, json.RawMessage(`{"a":1}`), [1][]int{{1}},
		struct{ At *time.Time }{}, struct{ Any any }{"a"},
	}
	virtual(t, func(t *testing.T) {
		var got []any
		a := &activity.Activity[any, int]{Name: "a", Run: func(_ context.Context, in any) (int, error) {
			got = append(got, in)
			return 0, nil
		}}
		named := &activity.Activity[fmt.Stringer, string]{Name: "b", Run: func(_ context.Context, in fmt.Stringer) (string, error) {
			in.(*hotel).spoil()
			return in.String(), nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			for _, in := range inputs {
				if _, err := a.Do(run, in); err != nil {
					return "", fmt.Errorf("%T: %w", in, err)
				}
			}
			h := &hotel{"Ritz", nil}
			_, err := named.Do(run, h)
			return h.Name, err
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "Ritz" {
			t.Errorf("behind an interface with methods: %s", got)
		}
		for i, in := range inputs {
			if !reflect.DeepEqual(got[i], in) {
				t.Errorf("%T %#v came as %T %#v", in, in, got[i], got[i])
			}
		}
		if err := p.Replay(ctx, bytes.NewReader(exported(t, p.Engine, "o"))); err != nil {
			t.Errorf("what is the same is no other input: %v", err)
		}
		p.stop(t)
	})
}

// An input that cannot be copied is the call's error: nothing is run, and nothing is
// recorded of an effect. That of an activity with a key holds the run.
func TestInputThatCannotBeCopied(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		var runs tally
		a := ran[any](&runs)
		keyed := ran[any](&runs)
		keyed.Idempotent = true
		wf := flow("w", func(run *engine.Run) (string, error) {
			for i, in := range []any{func() {}, make(chan int), []any{func() {}}, rude{}, &rude{}, map[string]unreadable{"": {}}, struct{ Err error }{errBroke}} {
				_, err := a.Do(run, in)
				var failed *activity.Error
				if !errors.Is(err, engine.ErrInvalid) || !errors.As(err, &failed) || !strings.Contains(err.Error(), "input") {
					return "", fmt.Errorf("%d, %T: %w", i, in, err)
				}
			}
			if _, err := a.Do(run, polite{}); err != nil { // it is not shared: nobody encodes it
				return "", err
			}
			if err := run.Sleep(3 * time.Minute); err != nil {
				return "", err
			}
			_, err := keyed.Do(run, func() {})
			return "", err
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, s, wf)
		h := wf.Handle(p, "o")
		time.Sleep(10 * time.Minute)
		if i := describe(t, p, "o"); i.Status.Terminal() || !heldFor(i, engine.ReasonBadInput) {
			_, err := outcome(h)
			t.Errorf("%+v, %v; want it held", i, err)
		}
		if n := runs.of("run"); n != 1 {
			t.Errorf("%d attempts", n)
		}
		if acts := entries(t, s, "act:"); len(acts) > 0 {
			t.Errorf("records: %q", acts)
		}
		p.stop(t)
	})
}

func ran[In any](c *tally) *activity.Activity[In, int] {
	return &activity.Activity[In, int]{Name: "a", Run: func(context.Context, In) (int, error) { return c.add("run"), nil }}
}

// rude panics when it is encoded, and may be shared. polite does, and may not.
type rude struct{ At *int }

func (rude) MarshalJSON() ([]byte, error) { panic("rude") }

type polite struct{ At int }

func (polite) MarshalJSON() ([]byte, error) { panic("rude all the same") }

// unreadable panics when it is decoded.
type unreadable struct{}

func (*unreadable) UnmarshalJSON([]byte) error { panic("unreadable") }

// A history of a release that took no copies goes on, also with an input of which there
// can be none: its outcome is recorded.
func TestOldOutcomeOfWhatCannotBeCopied(t *testing.T) {
	var runs tally
	wf := flow("w", func(run *engine.Run) (string, error) {
		_, err := ran[any](&runs).Do(run, func() {})
		return "", err
	})
	history := `{"history":1,"id":"o","workflow":"w","generation":"01ARZ3NDEKTSV4RRFFQ69G5FAV","status":"completed","started":"2026-01-01T00:00:00Z","input":""}
{"number":1,"time":"2026-01-01T00:00:00Z","events":[{"kind":"claimed","by":"host"}]}
{"number":2,"time":"2026-01-01T00:00:00Z","events":[{"kind":"settled","operation":"1","of":"activity","name":"a","attempt":1,"result":1}]}
{"number":3,"time":"2026-01-01T00:00:00Z","events":[{"kind":"ended","name":"completed"}]}
`
	e := made(t, new(memory.Store), wf)
	defer e.Close()
	if err := e.Replay(ctx, strings.NewReader(history)); err != nil || runs.of("run") > 0 {
		t.Errorf("%v; it ran %d times", err, runs.of("run"))
	}
}

// Inputs of plain data are copied with all that they have, also where JSON would refuse it
// or drop it, and each attempt may do with its copy what it likes.
func TestInputsOfPlainData(t *testing.T) {
	type line struct {
		Names []string
		Parts [2][]int
		price float64
	}
	type order struct {
		Lines  []line
		Bytes  json.RawMessage
		None   []int
		Empty  []int
		Rates  []float64
		At     []time.Time
		secret string
	}
	make := func() order {
		return order{
			Lines:  []line{{[]string{"book", "lamp"}, [2][]int{{1, 2}, nil}, 4.9}, {}},
			Bytes:  json.RawMessage("no JSON"),
			Empty:  []int{},
			Rates:  []float64{1, math.Inf(1)},
			At:     []time.Time{time.Unix(1, 0)},
			secret: "kept",
		}
	}
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		var attempts int
		a := &activity.Activity[order, string]{Name: "a", Run: func(_ context.Context, in order) (string, error) {
			if !reflect.DeepEqual(in, make()) {
				t.Errorf("attempt %d is given %+v", attempts, in)
			}
			in.Lines[0].Names[0], in.Lines[0].Parts[0][0], in.Lines[1].price = "spoilt", -1, -1
			in.Bytes[0], in.Rates[0], in.At[0] = 'x', -1, time.Time{}
			if attempts++; attempts < 3 {
				return "", errBroke
			}
			return "done", nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			in := make()
			f := a.Go(run, in)
			in.Lines[0].Names[1], in.Lines[0].Parts[0][1], in.Bytes[1], in.At[0] = "changed", 0, 'y', time.Time{}
			return f.Get(run)
		})
		p := boot(t, s, wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "done" || attempts != 3 {
			t.Errorf("%q after %d attempts", got, attempts)
		}
		p.stop(t)
	})
}
