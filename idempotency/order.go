package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// readSource reads the sequence of a source. If nothing is stored, the source has only its key.
func readSource(ctx context.Context, s storage.Storage, tenant, sourceType, name string) (*entry.Source, error) {
	key := keys.Order(tenant, sourceType, name)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return &entry.Source{Key: key}, nil
	}
	if err != nil {
		return nil, err
	}
	return entry.OpenSource(key, raw)
}

// An ordering is where the event of a job stands.
type ordering struct {
	source, version string
	compare         func(a, b string) (int, error)
	ties            bool
}

// guarded returns compare, which is user code, with panics as errors.
func guarded(compare func(a, b string) (int, error)) func(a, b string) (int, error) {
	return func(a, b string) (n int, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = panicked(p)
			}
		}()
		return compare(a, b)
	}
}

func (o *ordering) check() error {
	if o.source == "" || o.version == "" {
		return fmt.Errorf("%w: the event has no source or no version: %q, %q", ErrInvalid, o.source, o.version)
	}
	if err := checkText("Order.Source", o.source, maxSource); err != nil {
		return err
	}
	if err := checkText("Order.Version", o.version, maxSource); err != nil {
		return err
	}
	_, err := o.compare(o.version, o.version)
	return invalid(err)
}

// against compares the version with one that is stored. If that fails, the event is no more at fault than what is
// stored, or than Compare: the error is not ErrInvalid, even if Compare says so.
func (o *ordering) against(stored string) (int, error) {
	n, err := o.compare(o.version, stored)
	if err != nil {
		return 0, fmt.Errorf("the version %q cannot be compared with %q: %w", o.version, stored, notInvalid(err))
	}
	return n, nil
}

// notInvalid returns an error of a function of the host, which is not the fault of the request, even if it says so.
func notInvalid(err error) error {
	if errors.Is(err, ErrInvalid) {
		return errors.New(err.Error())
	}
	return err
}

func invalid(err error) error {
	if err == nil || errors.Is(err, ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// inSlot returns the entry that is under way in a source, or nil.
func (l *Ledger) inSlot(ctx context.Context, tenant, sourceType string, src *entry.Source) (*entry.Entry, error) {
	if src.SlotHash == "" {
		return nil, nil
	}
	e, err := l.find(ctx, keys.Claim(tenant, sourceType, src.SlotSourceID, src.SlotHash), src.SlotHash)
	if err != nil || e == nil || e.State != entry.InProgress && e.State != entry.Indeterminate {
		return nil, err
	}
	return e, nil
}

// precedence says how the event of j stands to the others of its source.
func (l *Ledger) precedence(ctx context.Context, j *job, src *entry.Source) (p entry.Precedence, err error) {
	p = entry.Precedence{Against: 1, Named: src.Hash == j.hash, Ties: j.order.ties}
	if src.Version != "" {
		if p.Against, err = j.order.against(src.Version); err != nil {
			return p, err
		}
	}
	if src.SlotHash == j.hash {
		return p, nil
	}
	slot, err := l.inSlot(ctx, j.key.Tenant, j.key.SourceType, src)
	if err != nil || slot == nil {
		return p, err
	}
	p.Slot = slot
	if slot.State == entry.InProgress {
		if p.Holder, _, err = l.vitality(ctx, slot, 0); err != nil {
			return p, err
		}
	}
	n, err := j.order.against(slot.OrderVersion)
	p.Newer = n > 0
	return p, err
}
