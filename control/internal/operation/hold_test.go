package operation

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Calls end within 10 s of the revocation of their keys, also if each of many keys is read slowly, and if the reads of some hang.
func TestManyKeysAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hangs = 40
		c := &Call{Env: &Env{}}
		c.Holds.Valid = func(ctx context.Context, who *Principal) bool {
			took := 100 * time.Millisecond
			if who.ID == "hangs" {
				took = time.Hour
			}
			select {
			case <-time.After(took):
				return false
			case <-ctx.Done():
				return true // the store cannot say
			}
		}
		var waiting []context.Context
		for i := range 1000 {
			c.Who = &Principal{ID: "k", Hash: fmt.Append(nil, i)}
			if i < hangs {
				c.Who.ID = "hangs"
			}
			ctx, release := c.Hold(t.Context())
			defer release()
			waiting = append(waiting, ctx)
		}
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		n := 0
		for _, ctx := range waiting[hangs:] {
			if ctx.Err() == nil {
				n++
			}
		}
		if n > 0 {
			t.Errorf("%d of %d calls wait after 10 s", n, len(waiting)-hangs)
		}
	})
}
