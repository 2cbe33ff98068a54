package journal

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// opensHooks is the ability to free the tokens of a run's hooks when the run ends.
const opensHooks = "hooks"

// A Hook is a workflow's record of a hook: hk:{id}:{hook}. It is written when the hook is opened and
// deleted when it is disposed of. The end of the run does not delete it, so that a retry can open the
// hook again.
type Hook struct {
	Generation string `cbor:"1,keyasint"`
	TokenHash  string `cbor:"2,keyasint"` // see keys.TokenHash
	Name       string `cbor:"3,keyasint"`
	Operation  string `cbor:"4,keyasint"` // that has opened it, or has taken it over from an earlier life

	ID string `cbor:"-"`

	key, raw []byte
	unknown  record.Unknown
}

// A HookAddress tells which hook has a token: hook:{hash of the token}. It exists while the hook is
// open. No two hooks ever have the same id, so the record never comes back unchanged for another hook.
type HookAddress struct {
	WorkflowID string `cbor:"1,keyasint"`
	Generation string `cbor:"2,keyasint"`
	HookID     string `cbor:"3,keyasint"`

	key, raw []byte
}

// HasHooks reports whether the run has ever opened a hook. If not, no records of hooks belong to it.
func (w *Workflow) HasHooks() bool { return slices.Contains(w.Needs, opensHooks) }

// OpensHook notes that the run opens a hook. A release that does not know of hooks would leave the
// token taken for ever.
func (w *Workflow) OpensHook() { w.need(opensHooks) }

// Put returns h with its encoding, and the operation that stores it with the workflow id.
func (h Hook) Put(id string) (*Hook, storage.Op, error) {
	h.key = keys.Hook(id, h.ID)
	var err error
	h.raw, err = record.Seal(h.key, Version, &h, h.unknown)
	return &h, storage.Put(h.key, h.raw), err
}

// Unchanged returns the condition that the stored record is still the one that was read or written.
func (h *Hook) Unchanged() storage.Condition { return storage.Equal(h.key, h.raw) }

// Raw returns the stored bytes.
func (h *Hook) Raw() []byte { return h.raw }

// PutBack returns the operation that stores the record as it was read.
func (h *Hook) PutBack() storage.Op { return storage.Put(h.key, h.raw) }

// Delete returns the operation that deletes the record.
func (h *Hook) Delete() storage.Op { return storage.Delete(h.key) }

// Free returns the operation that frees the token.
func (h *Hook) Free() storage.Op { return storage.Delete(keys.HookAddress(h.TokenHash)) }

// Occupy returns the condition that the token is free, and the operation that gives it to the hook,
// which belongs to w.
func (h *Hook) Occupy(w *Workflow) (storage.Condition, storage.Op, error) {
	key := keys.HookAddress(h.TokenHash)
	put, err := put(key, &HookAddress{WorkflowID: w.ID, Generation: w.Generation, HookID: h.ID})
	return storage.Absent(key), put, err
}

// OpenHook decodes a stored record of a hook.
func OpenHook(e storage.Entry) (*Hook, error) {
	h := &Hook{key: e.Key, raw: e.Value}
	var err error
	if h.ID, err = keys.Last(e.Key); err != nil {
		return nil, err
	}
	h.unknown, err = record.Open(e.Key, e.Value, Version, h)
	return h, err
}

// Hooks reads the records of the hooks of w. While the run has not ended, they are those that are
// open. Otherwise they are those that were open when it ended.
func Hooks(ctx context.Context, s storage.Storage, w *Workflow) (hs []*Hook, _ error) {
	if !w.HasHooks() {
		return nil, nil
	}
	for e, err := range storage.All(ctx, s, keys.HooksOf(w.ID)) {
		if err != nil {
			return nil, err
		}
		h, err := OpenHook(e)
		if err != nil {
			return nil, err
		}
		if h.Generation == w.Generation {
			hs = append(hs, h)
		}
	}
	return hs, nil
}

// TokensOf returns the operations that free the tokens of the hooks of w. It reads which hooks have
// the tokens of all runs, and not the records of the hooks of w, which may be damaged. An address that
// is damaged stays.
func TokensOf(ctx context.Context, s storage.Storage, w *Workflow) (ops []storage.Op, _ error) {
	for e, err := range storage.All(ctx, s, keys.HookAddresses) {
		if err != nil {
			return nil, err
		}
		if a, err := OpenHookAddress(e); err == nil && a.Of(w) {
			ops = append(ops, storage.Delete(e.Key))
		}
	}
	return ops, nil
}

// ReadHookAddress reads which hook has a token; nil is none.
func ReadHookAddress(ctx context.Context, s storage.Storage, hash string) (*HookAddress, error) {
	key := keys.HookAddress(hash)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return OpenHookAddress(storage.Entry{Key: key, Value: raw})
}

// OpenHookAddress decodes a stored address of a hook.
func OpenHookAddress(e storage.Entry) (*HookAddress, error) {
	a := &HookAddress{key: e.Key, raw: e.Value}
	_, err := record.Open(e.Key, e.Value, Version, a)
	return a, err
}

// Raw returns the stored bytes.
func (a *HookAddress) Raw() []byte { return a.raw }

// Unchanged returns the condition that the token is still that of the same hook.
func (a *HookAddress) Unchanged() storage.Condition { return storage.Equal(a.key, a.raw) }

// Of reports whether the hook belongs to the run w.
func (a *HookAddress) Of(w *Workflow) bool {
	return a.WorkflowID == w.ID && a.Generation == w.Generation
}
