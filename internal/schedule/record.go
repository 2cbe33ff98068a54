package schedule

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/cron"
	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// Version is the version of the records that this package writes.
const Version = 1

// A Record is the record sch:{id}. Times are in microseconds since 1970; zero means never.
// Durations are in microseconds.
type Record struct {
	ID string `cbor:"-"`

	// What is started. See weft.StartRequest.
	Workflow   string            `cbor:"1,keyasint,omitempty"`
	Codec      string            `cbor:"2,keyasint,omitempty"` // of the input; "" is JSON
	Input      []byte            `cbor:"3,keyasint,omitempty"`
	Digest     []byte            `cbor:"4,keyasint,omitempty"` // with Canonical: see digest.Digest
	Canonical  []byte            `cbor:"5,keyasint,omitempty"`
	Queue      string            `cbor:"6,keyasint,omitempty"`
	Deployment string            `cbor:"7,keyasint,omitempty"`
	Labels     map[string]string `cbor:"8,keyasint,omitempty"`

	// When. See cron.Times.
	Cron   []string `cbor:"9,keyasint,omitempty"`
	Zone   string   `cbor:"10,keyasint,omitempty"`
	Every  int64    `cbor:"11,keyasint,omitempty"`
	Offset int64    `cbor:"12,keyasint,omitempty"`
	From   int64    `cbor:"13,keyasint,omitempty"`
	Until  int64    `cbor:"14,keyasint,omitempty"`

	Overlap weft.Overlap `cbor:"15,keyasint,omitempty"`
	Missed  weft.Missed  `cbor:"16,keyasint,omitempty"`
	Within  int64        `cbor:"17,keyasint,omitempty"`
	Jitter  int64        `cbor:"18,keyasint,omitempty"`

	// Cursor is the time up to which everything has been dealt with, and Wall what clocks in the
	// zone showed then: see cron.Mark.
	Cursor int64 `cbor:"19,keyasint,omitempty"`
	Wall   int64 `cbor:"20,keyasint,omitempty"`

	// Due is the entry that says when to look; nil: nothing is to come.
	Due []byte `cbor:"21,keyasint,omitempty"`

	Last      *Started  `cbor:"22,keyasint,omitempty"` // the workflow that was started last
	Triggered []Trigger `cbor:"23,keyasint,omitempty"` // what is to be started besides, in order
	Pause     *Pause    `cbor:"24,keyasint,omitempty"` // nil: it is not paused

	// Numbers: workflows that were started, times that were skipped, times that were missed.
	Starts  int64  `cbor:"25,keyasint,omitempty"`
	Skips   int64  `cbor:"26,keyasint,omitempty"`
	Misses  int64  `cbor:"27,keyasint,omitempty"`
	Problem string `cbor:"28,keyasint,omitempty"` // why the last try failed
	Since   int64  `cbor:"29,keyasint,omitempty"` // the Problem

	// Token is random in every version of the record. So no two versions are equal, and who does not
	// know whether his commit was applied can tell.
	Token []byte `cbor:"30,keyasint,omitempty"`

	// Who put it last, why, and when.
	By  string `cbor:"31,keyasint,omitempty"`
	Why string `cbor:"32,keyasint,omitempty"`
	At  int64  `cbor:"33,keyasint,omitempty"`

	raw     []byte
	unknown record.Unknown
}

// Started is a workflow that a schedule has started.
type Started struct {
	ID         string `cbor:"1,keyasint"`
	Generation string `cbor:"2,keyasint"`
	Nominal    int64  `cbor:"3,keyasint,omitempty"` // zero: it was triggered
	At         int64  `cbor:"4,keyasint"`
}

// A Trigger is a workflow that was asked for besides the times of a schedule.
type Trigger struct {
	ID  string `cbor:"1,keyasint"` // of the workflow
	By  string `cbor:"2,keyasint"`
	Why string `cbor:"3,keyasint"`
	At  int64  `cbor:"4,keyasint"`
}

// A Pause says who has paused a schedule, why, and when.
type Pause struct {
	By  string `cbor:"1,keyasint"`
	Why string `cbor:"2,keyasint"`
	At  int64  `cbor:"3,keyasint"`
}

// Load reads a schedule. The error is a *notFound if there is none, and one for which record.Damaged is
// true if it cannot be decoded.
func Load(ctx context.Context, s storage.Storage, id string) (*Record, error) {
	key := keys.Schedule(id)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, &notFound{id}
	}
	if err != nil {
		return nil, err
	}
	return open(key, id, raw)
}

// Open decodes an entry of keys.Schedules.
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
		return nil, fmt.Errorf("schedule %q: %w", id, err)
	}
	r.unknown = unknown
	return r, nil
}

// notFound means that there is no schedule with an id. It is weft.ErrNotFound.
type notFound struct{ id string }

func (e *notFound) Error() string        { return fmt.Sprintf("engine: schedule %q not found", e.id) }
func (e *notFound) Is(target error) bool { return target == weft.ErrNotFound }

// Unchanged returns the condition that the stored record is still r, or that there is none if r
// was never stored.
func (r *Record) Unchanged() storage.Condition {
	if r.raw == nil {
		return storage.Absent(keys.Schedule(r.ID))
	}
	return storage.Equal(keys.Schedule(r.ID), r.raw)
}

// replace returns the batch that stores next instead of r, and next as stored. It removes the entry
// by which r was found, unless next names it; nil: there is none.
func (r *Record) replace(next *Record, found []byte) (*Record, storage.Batch, error) {
	n := *next
	n.Token = make([]byte, 16)
	_, _ = rand.Read(n.Token) // never fails (crypto/rand)
	key := keys.Schedule(r.ID)
	raw, err := record.Seal(key, Version, &n, r.unknown)
	if err != nil {
		return nil, storage.Batch{}, err
	}
	n.raw = raw
	b := storage.Batch{If: []storage.Condition{r.Unchanged()}, Ops: []storage.Op{storage.Put(key, raw)}}
	if n.Due != nil {
		b.Ops = append(b.Ops, storage.Put(n.Due, n.Token))
	}
	for _, entry := range slices.CompactFunc([][]byte{r.Due, found}, bytes.Equal) {
		if entry != nil && !bytes.Equal(entry, n.Due) {
			b.Ops = append(b.Ops, storage.Delete(entry))
		}
	}
	return &n, b, nil
}

// remove returns the batch that removes r.
func (r *Record) remove() storage.Batch {
	b := storage.Batch{If: []storage.Condition{r.Unchanged()}, Ops: []storage.Op{storage.Delete(keys.Schedule(r.ID))}}
	if r.Due != nil {
		b.Ops = append(b.Ops, storage.Delete(r.Due))
	}
	return b
}

// times returns when r has its times.
func (r *Record) times() cron.Times {
	return cron.Times{
		Cron: r.Cron, Zone: r.Zone, Every: duration(r.Every), Offset: duration(r.Offset),
		From: journal.Time(r.From), Until: journal.Time(r.Until),
	}
}

// sameTimes reports whether r and other have the same times.
func (r *Record) sameTimes(other *Record) bool {
	return slices.Equal(r.Cron, other.Cron) && r.Zone == other.Zone && r.Every == other.Every && r.Offset == other.Offset &&
		r.From == other.From && r.Until == other.Until
}

// same reports whether r and other are the same schedule, whatever has become of them.
func (r *Record) same(other *Record) bool {
	return r.sameTimes(other) && r.Workflow == other.Workflow && r.identity().Same(other.identity()) &&
		r.Queue == other.Queue && r.Deployment == other.Deployment && maps.Equal(r.Labels, other.Labels) &&
		r.Overlap == other.Overlap && r.Missed == other.Missed && r.Within == other.Within && r.Jitter == other.Jitter
}

func (r *Record) identity() digest.Digest {
	return digest.Digest{Plain: r.Digest, Canonical: r.Canonical}
}

// request returns the start of a workflow of r, without its input.
func (r *Record) request(id string) *weft.StartRequest {
	return &weft.StartRequest{Workflow: r.Workflow, ID: id, Options: weft.StartOptions{
		Queue: r.Queue, NoQueue: r.Queue == "", Deployment: r.Deployment, Labels: r.Labels,
	}}
}

func (r *Record) input() payload.Payload { return payload.Payload{Codec: r.Codec, Data: r.Input} }

// schedule returns r as it was put.
func (r *Record) schedule() weft.Schedule {
	s := weft.Schedule{
		ID: r.ID, Start: r.request(""), Cron: r.Cron, Zone: r.Zone, Every: duration(r.Every), Offset: duration(r.Offset),
		From: journal.Time(r.From), Until: journal.Time(r.Until), Overlap: r.Overlap, Missed: r.Missed,
		Within: duration(r.Within), Jitter: duration(r.Jitter),
	}
	if r.Codec == "" {
		s.Start.Input = json.RawMessage(r.Input)
	}
	return s
}

func (r *Record) mark() cron.Mark {
	return cron.Mark{At: time.UnixMicro(r.Cursor), Wall: journal.Time(r.Wall)}
}

// setMark sets the cursor to m.
func (r *Record) setMark(m cron.Mark) { r.Cursor, r.Wall = journal.Micro(m.At), journal.Micro(m.Wall) }

// advance moves the cursor to at, which has been dealt with. The wall clock of the cursor never goes
// back.
func (r *Record) advance(c *cron.Calendar, at time.Time) {
	wall := r.Wall
	r.setMark(c.Mark(at))
	r.Wall = max(r.Wall, wall)
}

func duration(micro int64) time.Duration { return saturate.Times(micro, time.Microsecond) }
