package keyring

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// HTTP-84, HTTP-86, T-16: how many permits a process takes, of which window.
func TestTake(t *testing.T) {
	now := time.Unix(60*1000+17, 0)
	for _, c := range []struct {
		what   string
		stored *rateRecord
		limit  int
		want   taking
	}{
		{"nothing is stored", nil, 120, taking{window: 1000, granted: 1, next: rateRecord{Window: 1000, Taken: 1}, remaining: 119}},
		{"of this window", &rateRecord{Window: 1000, Taken: 7}, 120, taking{window: 1000, granted: 1, next: rateRecord{Window: 1000, Taken: 8}, remaining: 112}},
		{"the last", &rateRecord{Window: 1000, Taken: 119}, 120, taking{window: 1000, granted: 1, next: rateRecord{Window: 1000, Taken: 120}}},
		{"none is left", &rateRecord{Window: 1000, Taken: 120}, 120, taking{window: 1000, next: rateRecord{Window: 1000, Taken: 120}}},
		{"of an earlier window", &rateRecord{Window: 999, Taken: 120}, 120, taking{window: 1000, granted: 1, next: rateRecord{Window: 1000, Taken: 1}, remaining: 119}},
		{"a clock that is ahead", &rateRecord{Window: 1001, Taken: 120}, 120, taking{window: 1001, next: rateRecord{Window: 1001, Taken: 120}}},
		{"a wrong clock", &rateRecord{Window: 1002, Taken: 120}, 120, taking{window: 1000, granted: 1, next: rateRecord{Window: 1000, Taken: 1}, remaining: 119, replaced: true}},
		{"many at a time", nil, 50_000, taking{window: 1000, granted: 50, next: rateRecord{Window: 1000, Taken: 50}, remaining: 49_950}},
		{"a part of many", &rateRecord{Window: 1000, Taken: 49_970}, 50_000, taking{window: 1000, granted: 30, next: rateRecord{Window: 1000, Taken: 50_000}}},
		{"a lower limit than before", &rateRecord{Window: 1000, Taken: 200}, 120, taking{window: 1000, next: rateRecord{Window: 1000, Taken: 200}}},
	} {
		got := take(c.stored, now, c.limit)
		if got.window != c.want.window || got.granted != c.want.granted || got.remaining != c.want.remaining || got.replaced != c.want.replaced ||
			got.next.Window != c.want.next.Window || got.next.Taken != c.want.next.Taken {
			t.Errorf("%s: got %+v, want %+v", c.what, got, c.want)
		}
	}
}

// HTTP-86: whoever takes, and whenever, no more than the limit is granted of one window.
func TestTakeNeverGrantsMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5000).Draw(t, "limit")
		granted := map[int64]int{}
		var stored *rateRecord
		now := time.Unix(60_000, 0)
		for range rapid.IntRange(1, 300).Draw(t, "takings") {
			// The clocks of processes are less than a minute apart.
			ahead := time.Duration(rapid.IntRange(0, 59).Draw(t, "ahead")) * time.Second
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "passes")) * time.Second)
			got := take(stored, now.Add(ahead), limit)
			granted[got.window] += got.granted
			stored = &rateRecord{Window: got.next.Window, Taken: got.next.Taken}
			if granted[got.window] > limit {
				t.Fatalf("of window %d %d are granted, the limit is %d", got.window, granted[got.window], limit)
			}
		}
	})
}

// A panicking store panics while it is broken.
type panicking struct {
	storage.Storage
	broken bool
}

func (p *panicking) Get(ctx context.Context, key []byte) ([]byte, error) {
	if p.broken {
		panic("the store is broken")
	}
	return p.Storage.Get(ctx, key)
}

// A store that panics once refuses one request: the next one takes permits.
func TestPermitAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &panicking{Storage: new(memory.Store), broken: true}
		r := &rates{limit: 10, store: s}
		who := &operation.Principal{ID: "key_1"}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = r.permit(t.Context(), who)
		}()
		s.broken = false
		if _, bad := r.permit(t.Context(), who); bad != nil {
			t.Errorf("the next request: %+v", bad)
		}
	})
}
