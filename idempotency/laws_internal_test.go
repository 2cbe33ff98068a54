package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/idempotency/internal/lease"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// laws is a store that judges each commit: whether it changes entries only as the specification allows.
// It looks like a store that several processes share. See alone for one that does not.
type laws struct {
	storage.Storage
	begun time.Time

	mu        sync.Mutex // guards the fields below; held while a batch is committed
	forgets   bool       // an operator forgets keys, or the sweep does
	due       func(e *entry.Entry, sealed time.Duration) string
	buried    func(holder string) // whose lease was removed
	wrongs    []string
	seals     map[string]int           // by key of the store
	sealed    map[string]time.Duration // true time of the last seal, since begun
	forgotten map[string]int
	changed   map[string]int // how often entries changed, by the states between which
}

func newLaws(s storage.Storage) *laws {
	return &laws{Storage: s, begun: time.Now(), seals: map[string]int{}, sealed: map[string]time.Duration{}, forgotten: map[string]int{}, changed: map[string]int{}}
}

// alone is a store that one process opens at a time.
type alone struct{ *laws }

func (alone) Opening() string { return "alone" }

func (a alone) Capabilities() storage.Capabilities {
	c := a.laws.Capabilities()
	c.Shared = false
	return c
}

func (l *laws) Capabilities() storage.Capabilities {
	c := l.Storage.Capabilities()
	c.Shared = true
	return c
}

// Commit commits a batch, and judges what it has done.
func (l *laws) Commit(ctx context.Context, b storage.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.entries(b)
	err := l.Storage.Commit(ctx, b)
	if errors.Is(err, storage.ErrConflict) {
		return err
	}
	for _, op := range b.Ops {
		if holder, ok := strings.CutPrefix(string(op.Key), "idemown:"); ok && err == nil && op.Kind == storage.DeleteOp && l.buried != nil {
			l.buried(holder)
		}
	}
	for at, after := range l.entries(b) { // also after an error: it may have been applied
		if was := before[at]; (was == nil) != (after == nil) || was != nil && !bytes.Equal(was.Raw, after.Raw) {
			l.judge(at, was, after, b)
		}
	}
	return err
}

// entries returns the entries that b writes, by their keys, as they are stored now.
func (l *laws) entries(b storage.Batch) map[string]*entry.Entry {
	found := map[string]*entry.Entry{}
	for _, op := range b.Ops {
		if !bytes.HasPrefix(op.Key, []byte("idem:")) {
			continue
		}
		found[string(op.Key)] = nil
		raw, err := l.Get(context.Background(), op.Key)
		if err != nil {
			if !errors.Is(err, storage.ErrNotFound) {
				l.wrong("read %q: %v", op.Key, err)
			}
			continue
		}
		e, err := decode(op.Key, raw)
		if err != nil {
			l.wrong("%v", err)
			continue
		}
		found[string(op.Key)] = e
	}
	return found
}

// decode reads the entry that is stored under a key.
func decode(at, raw []byte) (*entry.Entry, error) {
	_, _, _, hash, err := keys.ClaimNames(at)
	if err != nil {
		return nil, err
	}
	return entry.OpenAt(at, hash, raw)
}

func (l *laws) wrong(format string, args ...any) {
	l.wrongs = append(l.wrongs, fmt.Sprintf(format, args...))
}

// changes are what may become of an entry.
var changes = map[entry.State][]entry.State{
	"":                  {entry.InProgress},
	entry.Released:      {entry.InProgress, ""},
	entry.InProgress:    {entry.InProgress, entry.Sealed, entry.Failed, entry.Released, entry.Indeterminate, ""},
	entry.Indeterminate: {entry.InProgress, entry.Sealed, entry.Failed, entry.Released, ""},
	entry.Sealed:        {""},
	entry.Failed:        {""},
}

// judge judges one change of an entry. Either may be nil.
func (l *laws) judge(at string, was, is *entry.Entry, b storage.Batch) {
	from, to := entry.State(""), entry.State("")
	if was != nil {
		from = was.State
	}
	if is != nil {
		to = is.State
	}
	wrong := func(format string, args ...any) {
		l.wrong("%s from %q to %q: %s", at, from, to, fmt.Sprintf(format, args...))
	}
	now := time.Since(l.begun)
	l.changed[string(cmp.Or(from, "none"))+" to "+string(cmp.Or(to, "none"))]++
	if !slices.Contains(changes[from], to) {
		wrong("this is no transition")
	}
	if !slices.ContainsFunc(b.If, func(c storage.Condition) bool {
		if was == nil {
			return string(c.Key) == at && c.Kind == storage.IsAbsent
		}
		return string(c.Key) == at && c.Kind == storage.IsEqual && bytes.Equal(c.Value, was.Raw)
	}) {
		wrong("the batch does not hold to what was judged")
	}
	if is == nil {
		if !l.forgets {
			wrong("it is forgotten")
		}
		if l.due != nil && from == entry.Sealed {
			if why := l.due(was, l.sealed[at]); why != "" {
				wrong("%s", why)
			}
		}
		l.forgotten[at]++
		return
	}
	if was != nil && is.Updated <= was.Updated {
		wrong("its time of change does not rise: %d, %d", was.Updated, is.Updated)
	}
	if to == entry.Sealed {
		l.seals[at]++
		l.sealed[at] = now
		if is.SealedAt == 0 || is.EffectID == "" {
			wrong("the seal lacks its time or its effect: %+v", is)
		}
	}
	if to != entry.InProgress {
		if was != nil && (is.Epoch != was.Epoch || is.FirstSeen != was.FirstSeen) {
			wrong("an end changes the claim: %+v, %+v", was, is)
		}
		return
	}
	if !slices.ContainsFunc(b.If, func(c storage.Condition) bool {
		return c.Kind == storage.IsPresent && bytes.Equal(c.Key, keys.Holder(is.Holder))
	}) {
		wrong("the claim does not hold to the lease of its holder")
	}
	if was == nil {
		return
	}
	if is.Epoch <= was.Epoch {
		wrong("the fencing token does not rise: %d, %d", was.Epoch, is.Epoch)
	}
	if bytes.Equal(is.Owner, was.Owner) {
		wrong("a claim has the owner of another")
	}
	if is.Fingerprint == was.Fingerprint && (is.EffectID != was.EffectID || is.FirstSeen != was.FirstSeen || !bytes.Equal(is.Data, was.Data) || is.Attempt != was.Attempt+1) {
		wrong("the reservation, the first time or the number of attempts is not kept: %+v, %+v", was, is)
	}
	if is.Fingerprint != was.Fingerprint && from != entry.Released {
		wrong("FEN-16: another request takes the key")
	}
}

// kept returns an error if a law was broken.
func (l *laws) kept() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrongs) == 0 {
		return nil
	}
	return errors.New(strings.Join(l.wrongs, "\n"))
}

// inconsistencies returns what is wrong with the records of a store: each ended entry has exactly one
// idemexp, at its time, and no other has one; each slot of an idemver names an entry that is under way and is
// of that source, and each such entry is in its slot; the newest event of a source is sealed, or was
// forgotten.
func inconsistencies(s storage.Storage) (wrong []string, leases int) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	entries, expiring, slots := map[string]*entry.Entry{}, map[string]string{}, map[string]string{}
	var sources []storage.Entry
	for stored, err := range storage.All(context.Background(), s, storage.Prefix([]byte("idem"))) {
		if err != nil {
			bad("read: %v", err)
			return
		}
		at := string(stored.Key)
		switch family, _, _ := strings.Cut(at, ":"); family {
		case "idem":
			_, _, _, hash, err := keys.ClaimNames(stored.Key)
			if err != nil {
				bad("%v", err)
				continue
			}
			e, err := entry.OpenAt(stored.Key, hash, stored.Value)
			if err != nil {
				bad("%v", err)
				continue
			}
			entries[at] = e
		case "idemexp":
			when, tenant, sourceType, sourceID, hash, err := keys.ExpiringClaimNames(stored.Key)
			if err != nil {
				bad("%v", err)
				continue
			}
			of := string(keys.Claim(tenant, sourceType, sourceID, hash))
			if other, ok := expiring[of]; ok {
				bad("%s and %s are of one entry", other, at)
			}
			expiring[of] = at
			if e := entries[of]; e == nil || e.Expires != when.UnixMicro() { // idem: sorts before idemexp:
				bad("%s is of no entry that expires then: %+v", at, e)
			}
		case "idemver":
			sources = append(sources, stored)
		case "idemown":
			leases++
			if _, err := lease.Open(stored.Key, stored.Value); err != nil {
				bad("%v", err)
			}
		default:
			bad("a record of an unknown family: %s", at)
		}
	}
	for at, e := range entries {
		ended := e.State == entry.Sealed || e.State == entry.Failed || e.State == entry.Released
		if _, ok := expiring[at]; ok != ended {
			bad("%s is %s and has an idemexp: %v", at, e.State, ok)
		}
	}
	for _, stored := range sources {
		src, err := entry.OpenSource(stored.Key, stored.Value)
		if err != nil {
			bad("%v", err)
			continue
		}
		parts, err := storage.SplitKey(stored.Key)
		if err != nil || len(parts) != 4 {
			bad("the key %q: %v", stored.Key, err)
			continue
		}
		if src.Version == "" && src.SlotHash == "" {
			bad("%s says nothing", stored.Key)
		}
		if src.SlotHash != "" {
			at := string(keys.Claim(parts[1], parts[2], src.SlotSourceID, src.SlotHash))
			e := entries[at]
			if e == nil || e.State != entry.InProgress && e.State != entry.Indeterminate || e.OrderSource != parts[3] {
				bad("the slot of %s names what is not under way: %+v", stored.Key, e)
			} else if src.SlotEpoch != e.Epoch {
				bad("the slot of %s was taken with the token %d, and the claim has %d", stored.Key, src.SlotEpoch, e.Epoch)
			}
			slots[at] = string(stored.Key)
		}
		if src.Version != "" {
			e := entries[string(keys.Claim(parts[1], parts[2], src.SourceID, src.Hash))]
			if e != nil && (e.State != entry.Sealed || e.OrderVersion != src.Version || e.Epoch > src.Epoch || e.OrderSource != parts[3]) {
				bad("the newest of %s is not that which it names: %+v, %+v", stored.Key, src, e)
			}
		}
	}
	for at, e := range entries {
		if (e.State == entry.InProgress || e.State == entry.Indeterminate) && e.OrderSource != "" && slots[at] == "" {
			bad("%s is %s and in no slot", at, e.State)
		}
	}
	return wrong, leases
}

// consistent reports what is wrong with the records of a store.
func consistent(t testing.TB, s storage.Storage) {
	t.Helper()
	wrong, _ := inconsistencies(s)
	for _, w := range wrong {
		t.Error(w)
	}
}
