package bulk

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Version is the version of the records that this package writes.
const Version = 1

// A Record is the record bulk:{id}. Times are in microseconds since 1970; zero means never. Durations are
// in microseconds.
type Record struct {
	ID string `cbor:"-"`

	// What is done. See weft.Bulk.
	Do     weft.Verb `cbor:"1,keyasint"`
	Before string    `cbor:"2,keyasint,omitempty"`
	Filter Filter    `cbor:"3,keyasint"`
	Signal *Signal   `cbor:"4,keyasint,omitempty"`
	Count  int       `cbor:"5,keyasint,omitempty"`
	Per    int64     `cbor:"6,keyasint,omitempty"`

	// Who has started it, why, and when.
	By  string `cbor:"7,keyasint"`
	Why string `cbor:"8,keyasint"`
	At  int64  `cbor:"9,keyasint"`

	// Behind is the place up to which the list was read, and Scan of which list: see admin.Place. Page is what was
	// read before it and is not dealt with. While Rest is true, there may be more behind it.
	Behind []byte   `cbor:"10,keyasint,omitempty"`
	Scan   bool     `cbor:"11,keyasint,omitempty"`
	Page   []Member `cbor:"12,keyasint,omitempty"`
	Begun  bool     `cbor:"13,keyasint,omitempty"` // the list was read at least once
	Rest   bool     `cbor:"14,keyasint,omitempty"`

	Engine string `cbor:"15,keyasint,omitempty"` // the incarnation that carries it out

	// Numbers: workflows to which it was done, and that were refused, and the records of Refusals.
	Done    int64  `cbor:"16,keyasint,omitempty"`
	Refused int64  `cbor:"17,keyasint,omitempty"`
	Lists   int    `cbor:"18,keyasint,omitempty"`
	Last    string `cbor:"19,keyasint,omitempty"` // that was dealt with

	EndedAt int64 `cbor:"20,keyasint,omitempty"`
	Stopped *Stop `cbor:"21,keyasint,omitempty"` // nil: nobody has stopped it

	// Token is random in every version of the record. So no two versions are equal, and who does not
	// know whether his commit was applied can tell.
	Token []byte `cbor:"22,keyasint,omitempty"`

	raw     []byte
	unknown record.Unknown
}

// A Filter is a weft.Filter.
type Filter struct {
	Workflow    string            `cbor:"1,keyasint,omitempty"`
	Status      checkpoint.Status `cbor:"2,keyasint,omitempty"`
	Attention   bool              `cbor:"3,keyasint,omitempty"`
	Parent      string            `cbor:"4,keyasint,omitempty"`
	TopLevel    bool              `cbor:"5,keyasint,omitempty"`
	Labels      map[string]string `cbor:"6,keyasint,omitempty"`
	IDPrefix    string            `cbor:"7,keyasint,omitempty"`
	Deployment  string            `cbor:"8,keyasint,omitempty"`
	NoNamespace bool              `cbor:"9,keyasint,omitempty"`
	After       int64             `cbor:"10,keyasint,omitempty"`
	Before      int64             `cbor:"11,keyasint,omitempty"`
}

// A Signal is what is sent to each workflow. The payload goes when the bulk has ended.
type Signal struct {
	Name      string `cbor:"1,keyasint"`
	ID        string `cbor:"2,keyasint"`
	Own       bool   `cbor:"3,keyasint,omitempty"` // the ID was made for this bulk
	Codec     string `cbor:"4,keyasint,omitempty"` // "" is JSON
	Data      []byte `cbor:"5,keyasint,omitempty"`
	Digest    []byte `cbor:"6,keyasint,omitempty"` // with Canonical: see digest.Digest
	Canonical []byte `cbor:"7,keyasint,omitempty"`
	Memory    int64  `cbor:"8,keyasint,omitempty"` // how long its acceptance is remembered
}

// A Member is a workflow to which the operation is to be done.
type Member struct {
	ID         string `cbor:"1,keyasint"`
	Generation string `cbor:"2,keyasint,omitempty"`
	Life       int    `cbor:"3,keyasint,omitempty"`
	Damage     string `cbor:"4,keyasint,omitempty"` // why its record could not be read
	TakenUp    int64  `cbor:"5,keyasint,omitempty"` // when an operator had reset or resumed it last
	Held       int64  `cbor:"6,keyasint,omitempty"` // when it was protected; -1: it was not, 0: an earlier build has read it
}

// A Stop says who has stopped a bulk, and why.
type Stop struct {
	By  string `cbor:"1,keyasint"`
	Why string `cbor:"2,keyasint"`
}

// Refusals are the record bref:{id}:{n}: what was refused of a page.
type Refusals struct {
	List []Refusal `cbor:"1,keyasint"`
}

// A Refusal is a workflow to which the operation could not be done.
type Refusal struct {
	ID  string `cbor:"1,keyasint"`
	Why string `cbor:"2,keyasint"`
}

// Load reads a bulk. The error is a *notFound if there is none, and one for which record.Damaged is
// true if it cannot be decoded.
func Load(ctx context.Context, s storage.Storage, id string) (*Record, error) {
	key := keys.Bulk(id)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, &notFound{id}
	}
	if err != nil {
		return nil, err
	}
	return open(key, id, raw)
}

// Open decodes an entry of keys.Bulks.
func Open(e storage.Entry) (*Record, error) {
	id, err := keys.Last(e.Key)
	if err != nil {
		return nil, err
	}
	return open(e.Key, id, e.Value)
}

func open(key []byte, id string, raw []byte) (*Record, error) {
	r := &Record{ID: id, raw: raw}
	unknown, err := record.Open(key, raw, Version, r)
	if err != nil {
		return nil, fmt.Errorf("bulk %q: %w", id, err)
	}
	r.unknown = unknown
	return r, nil
}

// OpenRefusals decodes an entry of keys.BulkRefusalsOf.
func OpenRefusals(e storage.Entry) ([]Refusal, error) {
	var r Refusals
	_, err := record.Open(e.Key, e.Value, Version, &r)
	return r.List, err
}

// notFound means that there is no bulk with an id. It is weft.ErrNotFound.
type notFound struct{ id string }

func (e *notFound) Error() string        { return fmt.Sprintf("engine: bulk %q not found", e.id) }
func (e *notFound) Is(target error) bool { return target == weft.ErrNotFound }

// unchanged returns the condition that the stored record is still r, or that there is none if r
// was never stored.
func (r *Record) unchanged() storage.Condition {
	if r.raw == nil {
		return storage.Absent(keys.Bulk(r.ID))
	}
	return storage.Equal(keys.Bulk(r.ID), r.raw)
}

// replace returns the batch that stores next instead of r, and next as stored.
func (r *Record) replace(next *Record) (*Record, storage.Batch, error) {
	n := *next
	n.Token = make([]byte, 16)
	_, _ = rand.Read(n.Token) // never fails (crypto/rand)
	key := keys.Bulk(r.ID)
	raw, err := record.Seal(key, Version, &n, r.unknown)
	if err != nil {
		return nil, storage.Batch{}, err
	}
	n.raw, n.unknown = raw, r.unknown
	return &n, storage.Batch{If: []storage.Condition{r.unchanged()}, Ops: []storage.Op{storage.Put(key, raw)}}, nil
}

func (r *Record) ended() bool { return r.EndedAt != 0 }

// end sets that r has ended: not before it was started, so that it is not forgotten early if the clock is behind.
func (r *Record) end(now time.Time) {
	r.EndedAt, r.Page, r.Rest = max(journal.Micro(now), r.At), nil, false
	if r.Signal != nil {
		s := *r.Signal
		s.Codec, s.Data = "", nil
		r.Signal = &s
	}
}

// note counts the outcomes of a page, and returns the operations that list what was refused.
func (r *Record) note(o outcomes) ([]storage.Op, error) {
	r.Done += o.done
	listed := min(int64(len(o.refused)), max(0, weft.MaxRefusals-r.Refused))
	r.Refused += int64(len(o.refused))
	if o.last != "" {
		r.Last = o.last
	}
	if listed == 0 {
		return nil, nil
	}
	key := keys.BulkRefusals(r.ID, r.Lists)
	raw, err := record.Seal(key, Version, &Refusals{o.refused[:listed]}, nil)
	r.Lists++
	return []storage.Op{storage.Put(key, raw)}, err
}

// counted is how many workflows r has dealt with, and has counted.
func (r *Record) counted() int64 { return r.Done + r.Refused }

// same reports whether r and other are of the same weft.Bulk, whatever has become of them.
func (r *Record) same(other *Record) bool {
	return r.Do == other.Do && r.Before == other.Before && r.Filter.same(other.Filter) && r.Signal.same(other.Signal) &&
		r.Count == other.Count && r.Per == other.Per
}

func (f Filter) same(other Filter) bool {
	labels := maps.Equal(f.Labels, other.Labels)
	f.Labels, other.Labels = nil, nil
	return labels && reflect.DeepEqual(f, other)
}

// SelectsEverything reports whether a filter leaves out nothing.
func SelectsEverything(f weft.Filter) bool { return filterOf(f).same(Filter{}) }

func (s *Signal) same(other *Signal) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.Name == other.Name && s.Own == other.Own && (s.Own || s.ID == other.ID) && s.Memory == other.Memory &&
		s.digest().Same(other.digest())
}

func (s *Signal) digest() digest.Digest {
	return digest.Digest{Plain: s.Digest, Canonical: s.Canonical}
}

// ownMemory is the least time for which the acceptance of a signal is remembered whose ID was made for a bulk. If a
// bulk stands still for longer, in the middle of a page, it sends the signals of that page again.
const ownMemory = 30 * 24 * time.Hour

// incoming returns the signal to m.
func (s *Signal) incoming(m Member) *acceptance.Incoming {
	memory := duration(s.Memory)
	if s.Own {
		memory = max(memory, ownMemory)
	}
	return &acceptance.Incoming{WorkflowID: m.ID, Generation: m.Generation, Name: s.Name, ID: s.ID, Codec: s.Codec, Data: s.Data, Digest: s.digest(), Memory: memory}
}

func filterOf(f weft.Filter) Filter {
	return Filter{
		Workflow: f.Workflow, Status: f.Status, Attention: f.Attention, Parent: f.Parent, TopLevel: f.TopLevel,
		Labels: maps.Clone(f.Labels), IDPrefix: f.IDPrefix, Deployment: f.Deployment, NoNamespace: f.NoNamespace,
		After: journal.Micro(f.After), Before: journal.Micro(f.Before),
	}
}

func (f Filter) filter() weft.Filter {
	return weft.Filter{
		Workflow: f.Workflow, Status: f.Status, Attention: f.Attention, Parent: f.Parent, TopLevel: f.TopLevel,
		Labels: f.Labels, IDPrefix: f.IDPrefix, Deployment: f.Deployment, NoNamespace: f.NoNamespace,
		After: journal.Time(f.After), Before: journal.Time(f.Before),
	}
}

// began returns when r began. No two bulks with one id have begun at the same time.
func (r *Record) began() time.Time { return journal.Time(r.At) }

// actor returns who does an operation of r. Nothing else that is ever done has this Reason.
func (r *Record) actor() weft.Actor {
	return weft.Actor{Name: r.By, Reason: fmt.Sprintf("%s (bulk %q of %s)", r.Why, r.ID, r.began().UTC().Format("2006-01-02T15:04:05.000000Z"))}
}

// interval returns the time between the beginnings of two operations; 0 is any.
func (r *Record) interval() time.Duration {
	if r.Count == 0 {
		return 0
	}
	return saturate.Add(duration(r.Per), time.Duration(r.Count)-1) / time.Duration(r.Count)
}

// place returns how far the list was read; nil: not at all.
func (r *Record) place() *inspect.Place {
	if !r.Begun {
		return nil
	}
	return &inspect.Place{Behind: r.Behind, Scan: r.Scan}
}

// bulk returns r as it was started.
func (r *Record) bulk() weft.Bulk {
	b := weft.Bulk{Do: r.Do, Before: r.Before, Filter: r.Filter.filter(), Rate: activity.Rate{Count: r.Count, Per: duration(r.Per)}}
	if s := r.Signal; s != nil {
		b.Signal = signal.Message{Name: s.Name, ID: &s.ID, ExpiresAfter: duration(s.Memory)}
		if s.Codec == "" && s.Data != nil {
			b.Signal.Payload = json.RawMessage(s.Data)
		}
	}
	return b
}

// Info returns the state of r, without what was refused.
func (r *Record) Info() weft.BulkInfo {
	i := weft.BulkInfo{
		ID: r.ID, Bulk: r.bulk(), By: weft.Actor{Name: r.By, Reason: r.Why}, Began: r.began(), EndedAt: journal.Time(r.EndedAt),
		Done: r.Done, Refused: r.Refused, Last: r.Last, Engine: r.Engine,
	}
	if r.Stopped != nil {
		i.Stopped = &weft.Actor{Name: r.Stopped.By, Reason: r.Stopped.Why}
	}
	return i
}

// mostReason is the maximum length of a reason in Refusals in bytes.
const mostReason = 300

// reason returns the text of an error, cut.
func reason(err error) string {
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(s) > mostReason {
		s = strings.ToValidUTF8(s[:mostReason], "") + "…"
	}
	return s
}

func duration(micro int64) time.Duration { return saturate.Times(micro, time.Microsecond) }
