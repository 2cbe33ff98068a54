package storagetest

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A flawed store is a memory.Store with one fault.
type flawed struct {
	storage.Storage
	get    func(ctx context.Context, key []byte) ([]byte, error)
	scan   func(ctx context.Context, r storage.Range) ([]storage.Entry, error)
	commit func(ctx context.Context, b storage.Batch) error
	caps   func(*storage.Capabilities)
	close  func() error
}

func (s *flawed) Unwrap() storage.Storage { return s.Storage }

func (s *flawed) Get(ctx context.Context, key []byte) ([]byte, error) {
	if s.get != nil {
		return s.get(ctx, key)
	}
	return s.Storage.Get(ctx, key)
}

func (s *flawed) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if s.scan != nil {
		return s.scan(ctx, r)
	}
	return s.Storage.Scan(ctx, r)
}

func (s *flawed) Commit(ctx context.Context, b storage.Batch) error {
	if s.commit != nil {
		return s.commit(ctx, b)
	}
	return s.Storage.Commit(ctx, b)
}

func (s *flawed) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	if s.caps != nil {
		s.caps(&c)
	}
	return c
}

func (s *flawed) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Storage.Close()
}

// A flaw is one fault, and the rules that must find it.
type flaw struct {
	what   string
	breaks []string
	spoil  func(*flawed)
	whole  func() Adapter // instead of spoil
}

func (f flaw) adapter() Adapter {
	if f.whole != nil {
		return f.whole()
	}
	return Adapter{Open: func(testing.TB) storage.Storage {
		s := &flawed{Storage: new(memory.Store)}
		f.spoil(s)
		return s
	}}
}

var flaws = []flaw{
	// Reads.
	{"finds nothing", []string{"PutIsGot"}, func(s *flawed) {
		s.get = func(context.Context, []byte) ([]byte, error) { return nil, storage.ErrNotFound }
	}, nil},
	{"answers nil for what is missing", []string{"MissingKeyIsNotFound", "DeleteRemoves"}, func(s *flawed) {
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			v, err := s.Storage.Get(ctx, key)
			if errors.Is(err, storage.ErrNotFound) {
				return nil, nil
			}
			return v, err
		}
	}, nil},
	{"takes an empty value for none", []string{"EmptyValueIsThere"}, func(s *flawed) {
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			v, err := s.Storage.Get(ctx, key)
			if err == nil && len(v) == 0 {
				return nil, storage.ErrNotFound
			}
			return v, err
		}
	}, nil},
	{"ends a value at its first zero byte", []string{"KeysAndValuesAreBytes"}, func(s *flawed) {
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			v, err := s.Storage.Get(ctx, key)
			v, _, _ = bytes.Cut(v, []byte{0})
			return v, err
		}
	}, nil},
	{"cuts long values", []string{"LargeValueIsTaken"}, func(s *flawed) {
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			v, err := s.Storage.Get(ctx, key)
			return v[:min(len(v), 1<<16)], err
		}
	}, nil},
	{"reads after its context is done", []string{"DoneContextReadsNothing"}, func(s *flawed) {
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			return s.Storage.Get(context.WithoutCancel(ctx), key)
		}
	}, nil},
	{"hands out its own bytes", []string{"ReturnedBytesAreTheCallers"}, handOutOwnBytes, nil},
	{"cuts a page out of one buffer", []string{"ReturnedBytesAreTheCallers"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			page, err := s.Storage.Scan(ctx, r)
			var buffer []byte
			for _, e := range page {
				buffer = append(append(buffer, e.Key...), e.Value...)
			}
			for i, e := range page {
				k, v := len(e.Key), len(e.Value)
				page[i] = storage.Entry{Key: buffer[:k], Value: buffer[k : k+v]}
				buffer = buffer[k+v:]
			}
			return page, err
		}
	}, nil},
	{"reads into one buffer for all", []string{"BytesAreNotSharedByCalls"}, func(s *flawed) {
		var mu sync.Mutex
		var buffer []byte
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			v, err := s.Storage.Get(ctx, key)
			mu.Lock()
			buffer = append(buffer[:0], v...)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			return bytes.Clone(buffer), err // what races is the content of the buffer
		}
	}, nil},

	// Ranges.
	{"scans nothing as an error", []string{"EmptyStoreScansEmpty"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			page, err := s.Storage.Scan(ctx, r)
			if err == nil && len(page) == 0 {
				err = storage.ErrNotFound
			}
			return page, err
		}
	}, nil},
	{"orders keys as text", []string{"ScanIsInByteOrder"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			page, err := s.Storage.Scan(ctx, r)
			slices.SortStableFunc(page, func(a, b storage.Entry) int {
				return strings.Compare(strings.ToLower(string(a.Key)), strings.ToLower(string(b.Key)))
			})
			return page, err
		}
	}, nil},
	spoilRange("begins after Start", []string{"StartIsIncluded"}, func(r *storage.Range) {
		if r.Start != nil {
			r.Start = append(bytes.Clone(r.Start), 0)
		}
	}),
	spoilRange("includes End", []string{"EndIsExcluded"}, func(r *storage.Range) {
		if r.End != nil {
			r.End = append(bytes.Clone(r.End), 0)
		}
	}),
	spoilRange("takes a nil End for 0xff", []string{"NilBoundsAreOpen", "PrefixIsExact"}, func(r *storage.Range) {
		if r.End == nil {
			r.End = []byte{0xff}
		}
	}),
	spoilRange("takes an empty End for nil", []string{"EmptyEndIsNotNil"}, func(r *storage.Range) {
		if len(r.End) == 0 {
			r.End = nil
		}
	}),
	spoilRange("turns a backward range round", []string{"BackwardRangeIsEmpty"}, func(r *storage.Range) {
		if r.End != nil && bytes.Compare(r.Start, r.End) > 0 {
			r.Start, r.End = r.End, r.Start
		}
	}),
	spoilRange("ignores Limit", []string{"LimitBoundsPage"}, func(r *storage.Range) { r.Limit = 1 << 20 }),
	spoilRange("knows no default limit", []string{"NoLimitIsDefault"}, func(r *storage.Range) {
		if r.Limit == 0 {
			r.Limit = 1 << 20
		}
	}),
	spoilRange("takes a negative Limit for none", []string{"NoLimitIsDefault"}, func(r *storage.Range) {
		if r.Limit < 0 {
			r.Limit = 1 << 20
		}
	}),
	spoilRange("cuts long pages", []string{"LongPageIsWhole"}, func(r *storage.Range) { r.Limit = min(r.Limit, storage.DefaultLimit) }),
	{"ends a page at a mebibyte", []string{"LargePageIsWhole"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			page, err := s.Storage.Scan(ctx, r)
			size := 0
			for i, e := range page {
				if size += len(e.Key) + len(e.Value); size >= 1<<20 {
					return page[:i+1], err
				}
			}
			return page, err
		}
	}, nil},
	spoilRange("cuts pages short", []string{"LimitBoundsPage", "PagesCoverRange"}, func(r *storage.Range) { r.Limit = min(r.Limit, 10) }),
	spoilRange("cuts long bounds", []string{"PagesCoverRange"}, func(r *storage.Range) {
		r.Start, r.End = r.Start[:min(len(r.Start), storage.MaxKey)], r.End[:min(len(r.End), storage.MaxKey)]
	}),
	{"refuses long bounds", []string{"PagesCoverRange"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			if max(len(r.Start), len(r.End)) > storage.MaxKey {
				return nil, errors.New("key too long")
			}
			return s.Storage.Scan(ctx, r)
		}
	}, nil},
	spoilRange("ignores Reverse", []string{"ReverseBeginsAtEnd"}, func(r *storage.Range) { r.Reverse = false }),
	{"reads backwards from the Start", []string{"ReverseBeginsAtEnd"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			reverse := r.Reverse
			r.Reverse = false
			page, err := s.Storage.Scan(ctx, r)
			if reverse {
				slices.Reverse(page)
			}
			return page, err
		}
	}, nil},
	{"locks out writers behind a page", []string{"LoopMayWrite"}, func(s *flawed) {
		var open atomic.Bool
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			page, err := s.Storage.Scan(ctx, r)
			open.Store(len(page) == r.Limit)
			return page, err
		}
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if open.Load() {
				return errors.New("database is locked")
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},

	// Conditions.
	spoilBatch("ignores conditions", []string{"EqualFails", "AbsentFails", "PresentFails", "ConflictWritesNothing", "OnlyConditions",
		"InvalidConditionsAreRefused", "UrgentIsConditional", "ManyConditions"}, func(b *storage.Batch) { b.If = nil }),
	spoilBatch("judges only the first condition", []string{"EveryConditionIsJudged"}, func(b *storage.Batch) { b.If = b.If[:min(1, len(b.If))] }),
	spoilBatch("compares presence instead of bytes", []string{"EqualFails"}, func(b *storage.Batch) {
		b.If = slices.Clone(b.If)
		for i := range b.If {
			if b.If[i].Kind == storage.IsEqual {
				b.If[i].Kind = storage.IsPresent
			}
		}
	}),
	spoilBatch("takes what equals nil for absent", []string{"EqualHolds"}, func(b *storage.Batch) {
		b.If = slices.Clone(b.If)
		for i, c := range b.If {
			if c.Kind == storage.IsEqual && len(c.Value) == 0 {
				b.If[i].Value = []byte("NULL")
			}
		}
	}),
	{"compares values as text", []string{"EqualFails"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			b.If = slices.Clone(b.If)
			for i, c := range b.If {
				if v, err := s.Storage.Get(ctx, c.Key); c.Kind == storage.IsEqual && err == nil && strings.EqualFold(string(v), string(c.Value)) {
					b.If[i].Value = v
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"compares the first 4096 bytes of values", []string{"EqualFails"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			b.If = slices.Clone(b.If)
			for i, c := range b.If {
				v, err := s.Storage.Get(ctx, c.Key)
				if c.Kind == storage.IsEqual && err == nil && bytes.Equal(v[:min(len(v), 4096)], c.Value[:min(len(c.Value), 4096)]) {
					b.If[i].Value = v
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"remembers that a key was deleted", []string{"AbsentHolds"}, func(s *flawed) {
		var deleted sync.Map
		s.commit = func(ctx context.Context, b storage.Batch) error {
			for _, c := range b.If {
				if _, ok := deleted.Load(string(c.Key)); ok && c.Kind == storage.IsAbsent {
					return storage.ErrConflict
				}
			}
			for _, o := range b.Ops {
				deleted.Store(string(o.Key), o.Kind == storage.DeleteOp)
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	spoilBatch("does not judge the absence of what it deletes", []string{"AbsentStaysAbsent"}, func(b *storage.Batch) {
		b.If = slices.DeleteFunc(slices.Clone(b.If), func(c storage.Condition) bool {
			return c.Kind == storage.IsAbsent && slices.ContainsFunc(b.Ops, func(o storage.Op) bool {
				return o.Kind == storage.DeleteOp && bytes.Equal(o.Key, c.Key)
			})
		})
	}),
	{"finds an empty value absent", []string{"PresentHolds"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			for _, c := range b.If {
				v, err := s.Storage.Get(ctx, c.Key)
				if c.Kind == storage.IsPresent && err == nil && len(v) == 0 {
					return storage.ErrConflict
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"writes what comes before the conflict is noticed", []string{"ConflictWritesNothing"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			err := s.Storage.Commit(ctx, b)
			if errors.Is(err, storage.ErrConflict) {
				s.Storage.Commit(ctx, storage.Batch{Ops: b.Ops[:1]})
			}
			return err
		}
	}, nil},
	{"judges conditions behind the operations", []string{"ConditionsComeFirst"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			put := map[string][]byte{}
			for _, o := range b.Ops {
				put[string(o.Key)] = o.Value
			}
			conditions := b.If
			b.If = nil
			for _, c := range conditions {
				if v, ok := put[string(c.Key)]; !ok || c.Kind == storage.IsEqual && !bytes.Equal(v, c.Value) {
					b.If = append(b.If, c)
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"takes a race for a conflict", []string{"NoConditionsNoConflict", "BadBatchFailsAlone"}, func(s *flawed) {
		var running atomic.Int32
		s.commit = func(ctx context.Context, b storage.Batch) error {
			defer running.Add(-1)
			if running.Add(1) > 1 {
				return storage.ErrConflict
			}
			runtime.Gosched()
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"claims no conditions and ignores them", []string{"EqualHolds", "ConflictWritesNothing", "OneAbsentWins"}, func(s *flawed) { // CAP-5
		s.caps = func(c *storage.Capabilities) { c.ConditionalBatch = false }
		s.commit = func(ctx context.Context, b storage.Batch) error {
			return s.Storage.Commit(ctx, storage.Batch{Ops: b.Ops})
		}
	}, nil},
	{"claims no conditions and reads, then writes", []string{"EqualHolds", "OneEqualWins"}, func(s *flawed) { // CAP-5
		s.caps = func(c *storage.Capabilities) { c.ConditionalBatch = false }
		s.commit = readThenWrite(s.Storage)
	}, nil},

	// Batches.
	spoilOps("stores a value once", []string{"PutOverwrites"}, func(s storage.Storage, o storage.Op) (storage.Op, bool) {
		_, err := s.Get(context.Background(), o.Key)
		return o, o.Kind != storage.PutOp || err != nil
	}),
	spoilOps("empties what it should delete", []string{"DeleteRemoves"}, func(_ storage.Storage, o storage.Op) (storage.Op, bool) {
		if o.Kind == storage.DeleteOp {
			o = storage.Put(o.Key, nil)
		}
		return o, true
	}),
	{"fails to delete what is missing", []string{"DeleteOfMissingKeyIsFine"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			for _, o := range b.Ops {
				if _, err := s.Storage.Get(ctx, o.Key); o.Kind == storage.DeleteOp && err != nil {
					return err
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"takes keys of 255 bytes", []string{"LongestKeyIsTaken"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			for _, o := range b.Ops {
				if len(o.Key) > 255 {
					return errors.New("key too long")
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"takes long keys that can be compressed", []string{"LongestKeyIsTaken"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			for _, o := range b.Ops {
				if text := hex.EncodeToString(o.Key); compressed([]byte(text)) > 2000 {
					return errors.New("the row of the index is too large")
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	spoilOps("cuts long keys", []string{"LongKeyIsRefused", "InvalidOpsAreRefused"}, func(_ storage.Storage, o storage.Op) (storage.Op, bool) {
		o.Key = o.Key[:min(len(o.Key), storage.MaxKey)]
		return o, true
	}),
	spoilOps("leaves out what is invalid", []string{"InvalidOpsAreRefused"}, func(_ storage.Storage, o storage.Op) (storage.Op, bool) {
		return o, storage.Batch{Ops: []storage.Op{o}}.Check(storage.Size{}) == nil
	}),
	{"writes until it finds what is invalid", []string{"InvalidOpsAreRefused", "TooLargeIsRefused"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			err := s.Storage.Commit(ctx, b)
			if errors.Is(err, storage.ErrInvalidBatch) {
				s.Storage.Commit(ctx, storage.Batch{Ops: b.Ops[:1]})
			}
			return err
		}
	}, nil},
	{"refuses to do nothing", []string{"EmptyBatchIsFine"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if len(b.Ops) == 0 {
				return storage.ErrInvalidBatch
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	spoilBatch("deletes ranges last", []string{"OpsInOrder", "AgreesWithModel"}, func(b *storage.Batch) {
		b.Ops = slices.Clone(b.Ops)
		slices.SortStableFunc(b.Ops, func(a, b storage.Op) int {
			return int(a.Kind/storage.DeleteRangeOp) - int(b.Kind/storage.DeleteRangeOp)
		})
	}),
	spoilBatch("deletes ranges first", []string{"OpsInOrder", "AgreesWithModel"}, func(b *storage.Batch) {
		b.Ops = slices.Clone(b.Ops)
		slices.SortStableFunc(b.Ops, func(a, b storage.Op) int {
			return int(b.Kind/storage.DeleteRangeOp) - int(a.Kind/storage.DeleteRangeOp)
		})
	}),
	spoilOps("deletes the End of a range", []string{"DeleteRangeIsExact", "AgreesWithModel"}, func(_ storage.Storage, o storage.Op) (storage.Op, bool) {
		if o.Range.End != nil {
			o.Range.End = append(bytes.Clone(o.Range.End), 0)
		}
		return o, true
	}),
	{"deletes a page instead of a range", []string{"DeleteRangeIsWhole"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			var ops []storage.Op
			for _, o := range b.Ops {
				if o.Kind != storage.DeleteRangeOp {
					ops = append(ops, o)
					continue
				}
				page, _ := s.Storage.Scan(ctx, o.Range)
				for _, e := range page {
					ops = append(ops, storage.Delete(e.Key))
				}
			}
			b.Ops = ops
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"loses what is urgent", []string{"UrgentIsABatch"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if b.Urgent {
				return nil
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"counts nobody in a group", []string{"GroupIsCounted"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if b.Group != nil {
				*b.Group = 0
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"counts what joins no group", []string{"GroupIsCounted"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if b.Group != nil {
				*b.Group = 1
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"takes less than it claims", []string{"LargestBatchIsTaken"}, func(s *flawed) {
		s.caps = func(c *storage.Capabilities) { c.MaxBatch.Ops *= 2 }
	}, nil},
	{"takes more than it claims", []string{"TooLargeIsRefused"}, func(s *flawed) {
		s.caps = func(c *storage.Capabilities) { c.MaxBatch.Ops /= 2 }
	}, nil},
	{"takes fewer conditions than operations", []string{"LargestBatchIsTaken"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if len(b.If) > 999 {
				return errors.New("too many variables")
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"does not count conditions", []string{"TooLargeIsRefused"}, func(s *flawed) {
		const most = 1000
		s.caps = func(c *storage.Capabilities) { c.MaxBatch.Ops = most }
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if len(b.Ops) > most {
				return storage.ErrInvalidBatch
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"judges conditions before it looks at operations", []string{"InvalidConditionsAreRefused"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if (storage.Batch{Ops: b.Ops}).Check(storage.Size{}) != nil {
				for _, c := range b.If {
					if v, err := s.Storage.Get(ctx, c.Key); !holds(c, v, err) {
						return storage.ErrConflict
					}
				}
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},

	// Concurrency.
	{"keeps the caller's bytes", []string{"CallersBytesAreCopied", "BytesAreNotSharedByCalls"}, keepCallersBytes, nil},
	{"acknowledges before it writes", []string{"PutIsGot", "WriteIsSeenByAll"}, func(s *flawed) {
		var mu sync.Mutex
		var late []storage.Batch
		s.commit = func(ctx context.Context, b storage.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range late {
				s.Storage.Commit(ctx, l)
			}
			late = []storage.Batch{b}
			return nil
		}
	}, nil},
	{"reads, then writes", []string{"OneAbsentWins", "OneEqualWins", "NoIncrementIsLost", "TransfersConserveSum", "SomeSerialOrder"}, func(s *flawed) {
		s.commit = readThenWrite(s.Storage)
	}, nil},
	{"locks what it writes and not what it compares", []string{"BatchesInterleaveSerially"}, lockOnlyWrites, nil},
	{"writes one operation after the other", []string{"BatchIsSeenWhole", "CancelledIsAllOrNothing"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			for _, o := range b.Ops {
				if err := s.Storage.Commit(ctx, storage.Batch{Ops: []storage.Op{o}}); err != nil {
					return err
				}
				runtime.Gosched()
			}
			return nil
		}
	}, nil},
	{"claims one view and reads twice", []string{"BatchIsSeenWhole"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			page, err := s.Storage.Scan(ctx, r)
			if err != nil || len(page) < 2 {
				return page, err
			}
			runtime.Gosched()
			again, err := s.Storage.Scan(ctx, r)
			half := min(len(page), len(again)) / 2
			return append(page[:half:half], again[half:]...), err
		}
	}, nil},
	{"deletes ranges in a transaction of their own", []string{"RangeIsReplacedWhole", "BatchesInterleaveSerially"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if !b.HasDeleteRange() {
				return s.Storage.Commit(ctx, b)
			}
			var ranges, rest storage.Batch
			for _, o := range b.Ops {
				if o.Kind == storage.DeleteRangeOp {
					ranges.Ops = append(ranges.Ops, o)
				} else {
					rest.Ops = append(rest.Ops, o)
				}
			}
			ranges.If = b.If
			if err := s.Storage.Commit(ctx, ranges); err != nil {
				return err
			}
			for range 5 {
				runtime.Gosched()
			}
			return s.Storage.Commit(ctx, rest)
		}
	}, nil},
	{"lets one bad batch fail its group", []string{"BadBatchFailsAlone"}, func(s *flawed) {
		var bad atomic.Int32
		s.commit = func(ctx context.Context, b storage.Batch) error {
			before := bad.Load()
			if err := b.Check(storage.Size{}); err != nil {
				bad.Add(1)
				return err
			}
			for range 5 {
				runtime.Gosched()
			}
			if bad.Load() != before {
				return errors.New("the group failed")
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},

	// Contexts.
	{"writes after its context is done", []string{"DoneContextWritesNothing"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if err := s.Storage.Commit(context.WithoutCancel(ctx), b); err != nil {
				return err
			}
			return ctx.Err()
		}
	}, nil},
	{"tries again what it wrote", []string{"CancelledIsNoConflict"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			err := s.Storage.Commit(ctx, b)
			for range 20 {
				runtime.Gosched()
			}
			if ctx.Err() != nil {
				err = s.Storage.Commit(context.WithoutCancel(ctx), b)
			}
			return err
		}
	}, nil},
	{"says that it has withdrawn what it wrote", []string{"CancelledIsAllOrNothing", "CancelledIsNoConflict"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			err := s.Storage.Commit(ctx, b)
			for range 20 {
				runtime.Gosched()
			}
			if err == nil && ctx.Err() != nil {
				return &storage.WithdrawnError{Ended: ctx.Err()}
			}
			return err
		}
	}, nil},
	{"reads the caller's bytes after its answer", []string{"CancelledIsAllOrNothing", "CancelledIsNoConflict"}, readLate, nil},
	{"gives up in the middle and says nil", []string{"CancelledIsAllOrNothing"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			err := s.Storage.Commit(ctx, b)
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
	}, nil},
	{"ends a page when its context ends", []string{"CancelledScanIsWholeOrFails"}, func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) (page []storage.Entry, _ error) {
			all, err := s.Storage.Scan(ctx, r)
			for _, e := range all {
				if page = append(page, e); ctx.Err() != nil {
					break
				}
				runtime.Gosched()
			}
			return page, err
		}
	}, nil},

	// Opening and closing.
	{"learns what it can", []string{"CapabilitiesNeverChange"}, func(s *flawed) {
		var used atomic.Bool
		s.caps = func(c *storage.Capabilities) { c.Durable = used.Swap(true) }
	}, nil},
	{"claims more than is published", []string{"CapabilitiesAreAsPublished"}, nil, func() Adapter {
		want := new(memory.Store).Capabilities()
		want.AtomicBatch = false
		return Adapter{Open: openMemory, Want: &want}
	}},
	{"works after Close", []string{"ClosedIsClosed"}, func(s *flawed) {
		s.close = func() error { return nil }
	}, nil},
	{"has closed when asked to do nothing", []string{"ClosedIsClosed"}, func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			if len(b.If)+len(b.Ops) == 0 {
				return nil
			}
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"has no patience with others", []string{"CloseAnswersCommits"}, func(s *flawed) {
		var running atomic.Int32
		s.commit = func(ctx context.Context, b storage.Batch) error {
			defer running.Add(-1)
			if running.Add(1) > 1 && !isClosed(s.Storage) {
				return errors.New("database is locked")
			}
			runtime.Gosched()
			return s.Storage.Commit(ctx, b)
		}
	}, nil},
	{"serves one of many when the others have gone", []string{"EverybodyGetsATurn"}, starveOne, nil},
	{"judges conditions on what was there a moment ago", []string{"LaterSeesEarlier"}, judgeThePast, nil},
	{"keeps a goroutine", []string{"CloseStopsGoroutines"}, nil, func() Adapter {
		return Adapter{Open: func(t testing.TB) storage.Storage {
			stop := make(chan struct{})
			t.Cleanup(func() { close(stop) })
			go func() { <-stop }()
			return new(memory.Store)
		}}
	}},
	{"forgets when closed", []string{"ReopenKeeps", "CloseAnswersCommits"}, nil, func() Adapter {
		return Adapter{Open: openMemory, Reopen: func(testing.TB, storage.Storage) storage.Storage { return new(memory.Store) }}
	}},
	{"forgets that it deleted last", []string{"ReopenKeeps"}, nil, func() Adapter {
		return Adapter{
			Open: func(testing.TB) storage.Storage { return forgetLastDeletes(NewFaulty(new(memory.Store), nil)) },
			Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
				return forgetLastDeletes(again(s.(*flawed).Storage))
			},
		}
	}},
	reopened("can be opened twice", "SecondOpeningIsRefused", func(_ testing.TB, s storage.Storage) storage.Storage { return again(s) }),
	{"loses its lock to whom it refuses", []string{"SecondOpeningIsRefused"}, nil, func() Adapter {
		refused := false
		return Adapter{Open: persistent.Open, Reopen: func(t testing.TB, s storage.Storage) storage.Storage {
			if !refused {
				refused = true
				t.Fatal(storage.ErrInUse)
			}
			return again(s)
		}}
	}},
	reopened("does not say that it is in use", "SecondOpeningIsRefused", func(t testing.TB, s storage.Storage) storage.Storage {
		if !isClosed(s) {
			t.Error("resource temporarily unavailable")
			return nil
		}
		return again(s)
	}),
	{"is closed by whom it refuses", []string{"SecondOpeningIsRefused"}, nil, func() Adapter {
		return Adapter{Open: persistent.Open, Reopen: func(t testing.TB, s storage.Storage) storage.Storage {
			s.Close()
			t.Fatal(storage.ErrInUse)
			return nil
		}}
	}},
	{"claims Shared and keeps a copy", []string{"OpeningsShare"}, nil, func() Adapter {
		return Adapter{Open: shared.Open, Reopen: func(testing.TB, storage.Storage) storage.Storage { return claimShared(new(memory.Store)) }}
	}},
	{"claims Shared and closes all openings", []string{"OpeningsShare"}, nil, func() Adapter {
		return Adapter{Open: shared.Open, Reopen: func(_ testing.TB, s storage.Storage) storage.Storage { return s }}
	}},
	spoilOpenings("is atomic within one opening only", []string{"OneAbsentWinsOfOpenings", "OneEqualWinsOfOpenings", "OpeningsInterleaveSerially",
		"SomeSerialOrderOfOpenings"}, func(s *flawed) {
		var mu sync.Mutex
		write := readThenWrite(s.Storage)
		s.commit = func(ctx context.Context, b storage.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			return write(ctx, b)
		}
	}),
	spoilOpenings("shows other openings half of a batch", []string{"BatchIsSeenWholeByOpenings", "RangeIsReplacedWholeOfOpenings"}, func(s *flawed) {
		var mu sync.RWMutex
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			mu.RLock()
			defer mu.RUnlock()
			return s.Storage.Scan(ctx, r)
		}
		s.commit = func(ctx context.Context, b storage.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, o := range b.Ops {
				if err := s.Storage.Commit(ctx, storage.Batch{If: b.If, Ops: []storage.Op{o}}); err != nil {
					return err
				}
				runtime.Gosched()
			}
			return nil
		}
	}),
	spoilOpenings("claims no readAfterWrite and judges conditions late", []string{"OneAbsentWinsOfOpenings", "OneEqualWinsOfOpenings",
		"LaterSeesEarlierOfOpenings"}, func(s *flawed) {
		shared := s.caps
		s.caps = func(c *storage.Capabilities) {
			shared(c)
			c.ReadAfterWrite = false
		}
		s.commit = judgeByOwnPuts(readThenWrite(s.Storage))
	}),
	spoilOpenings("reads from a cache that only its own commits empty", []string{"WriteIsSeenByAllOpenings"}, func(s *flawed) {
		var mu sync.Mutex
		known := map[string][]byte{}
		s.get = func(ctx context.Context, key []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			if v, ok := known[string(key)]; ok {
				return bytes.Clone(v), nil
			}
			v, err := s.Storage.Get(ctx, key)
			if err == nil {
				known[string(key)] = bytes.Clone(v)
			}
			return v, err
		}
		s.commit = func(ctx context.Context, b storage.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			clear(known)
			return s.Storage.Commit(ctx, b)
		}
	}),
	spoilOpenings("judges conditions by what it has put itself", []string{"LaterSeesEarlierOfOpenings"}, func(s *flawed) {
		s.commit = judgeByOwnPuts(s.Storage.Commit)
	}),
	{"claims Shared and has an Opening", []string{"OpeningIsUnique"}, nil, func() Adapter {
		return Adapter{Open: func(testing.TB) storage.Storage { return withOpening(NewFaulty(new(memory.Store), nil)) }}
	}},
	{"has the same Opening when opened again", []string{"OpeningIsUnique"}, nil, func() Adapter {
		return Adapter{Open: persistent.Open, Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
			old := s.(*Faulty)
			again := NewFaulty(old.inner, nil)
			again.opening = old.opening
			return again
		}}
	}},
	{"does not tell its Opening", []string{"OpeningIsUnique"}, nil, func() Adapter {
		return Adapter{Open: func(testing.TB) storage.Storage { return struct{ storage.Storage }{new(memory.Store)} }}
	}},
	spoilProof("says that every session has ended", func(known, _ bool) bool { return known }),
	spoilProof("says that sessions it does not know have ended", func(known, ended bool) bool { return !known || ended }),
	{"ends sessions when it is closed", []string{"SessionIsProven"}, nil, func() Adapter {
		s := &proving{Storage: new(memory.Store), spoil: func(_, ended bool) bool { return ended }}
		return Adapter{
			Open: func(testing.TB) storage.Storage { return NewFaulty(s, nil) },
			Reopen: func(testing.TB, storage.Storage) storage.Storage {
				s.spoil = func(known, _ bool) bool { return known }
				return NewFaulty(s, nil)
			},
		}
	}},
}

// reopened returns a flaw in how a persistent store is opened again.
func reopened(what, breaks string, reopen func(testing.TB, storage.Storage) storage.Storage) flaw {
	return flaw{what, []string{breaks}, nil, func() Adapter { return Adapter{Open: persistent.Open, Reopen: reopen} }}
}

// forgetLastDeletes makes s write deletions no earlier than with the next batch that puts something.
func forgetLastDeletes(s storage.Storage) *flawed {
	f := &flawed{Storage: s}
	var undo []storage.Op
	f.commit = func(ctx context.Context, b storage.Batch) error {
		before, _ := s.Scan(ctx, storage.Range{})
		err := s.Commit(ctx, b)
		if slices.ContainsFunc(b.Ops, func(o storage.Op) bool { return o.Kind == storage.PutOp }) {
			undo = nil
		} else {
			for _, e := range before {
				undo = append(undo, storage.Put(e.Key, e.Value))
			}
		}
		return err
	}
	f.close = func() error {
		seen := map[string]bool{}
		undo = slices.DeleteFunc(undo, func(o storage.Op) bool {
			again := seen[string(o.Key)]
			seen[string(o.Key)] = true
			return again
		})
		s.Commit(context.Background(), storage.Batch{Ops: undo})
		return s.Close()
	}
	return f
}

// A proving store is a Prover. spoil changes what it says of a session.
type proving struct {
	storage.Storage
	spoil func(known, ended bool) bool
	mu    sync.Mutex
	ended map[string]bool
}

type provingSession struct {
	store *proving
	proof string
}

func (s *proving) OpenSession(context.Context, string, time.Duration) (storage.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[string]bool{}
	}
	p := fmt.Sprint(len(s.ended))
	s.ended[p] = false
	return &provingSession{s, p}, nil
}

func (s *proving) SessionsEnded(_ context.Context, proofs []string) (all []bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range proofs {
		ended, known := s.ended[p]
		all = append(all, s.spoil(known, ended))
	}
	return all, nil
}

func (s *provingSession) Proof() string         { return s.proof }
func (s *provingSession) Lost() <-chan struct{} { return nil }
func (s *provingSession) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.ended[s.proof] = true
}

func spoilProof(what string, spoil func(known, ended bool) bool) flaw {
	return flaw{what, []string{"SessionIsProven"}, nil, func() Adapter {
		return Adapter{Open: func(testing.TB) storage.Storage { return &proving{Storage: new(memory.Store), spoil: spoil} }}
	}}
}

// spoilRange returns a flaw that changes the range of a Scan.
func spoilRange(what string, breaks []string, spoil func(*storage.Range)) flaw {
	return flaw{what: what, breaks: breaks, spoil: func(s *flawed) {
		s.scan = func(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
			spoil(&r)
			return s.Storage.Scan(ctx, r)
		}
	}}
}

// spoilBatch returns a flaw that changes a batch before it is committed.
func spoilBatch(what string, breaks []string, spoil func(*storage.Batch)) flaw {
	return flaw{what: what, breaks: breaks, spoil: func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			spoil(&b)
			return s.Storage.Commit(ctx, b)
		}
	}}
}

// spoilOps returns a flaw that changes or drops single operations.
func spoilOps(what string, breaks []string, spoil func(storage.Storage, storage.Op) (storage.Op, bool)) flaw {
	return flaw{what: what, breaks: breaks, spoil: func(s *flawed) {
		s.commit = func(ctx context.Context, b storage.Batch) error {
			var ops []storage.Op
			for _, o := range b.Ops {
				if o, ok := spoil(s.Storage, o); ok {
					ops = append(ops, o)
				}
			}
			b.Ops = ops
			return s.Storage.Commit(ctx, b)
		}
	}}
}

// readThenWrite checks the conditions first and applies the batch a moment later.
func readThenWrite(s storage.Storage) func(context.Context, storage.Batch) error {
	return func(ctx context.Context, b storage.Batch) error {
		for _, c := range b.If {
			v, err := s.Get(ctx, c.Key)
			if !holds(c, v, err) {
				return storage.ErrConflict
			}
		}
		for range 5 {
			runtime.Gosched()
		}
		return s.Commit(ctx, storage.Batch{Ops: b.Ops})
	}
}

// judgeByOwnPuts judges conditions by what it has put itself, and leaves others to commit.
func judgeByOwnPuts(commit func(context.Context, storage.Batch) error) func(context.Context, storage.Batch) error {
	var mu sync.Mutex
	known := map[string][]byte{}
	return func(ctx context.Context, b storage.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range b.If {
			if v, ok := known[string(c.Key)]; ok && !holds(c, v, nil) {
				return storage.ErrConflict
			}
		}
		err := commit(ctx, b)
		for _, o := range b.Ops {
			if err == nil {
				known[string(o.Key)] = bytes.Clone(o.Value)
			}
		}
		return err
	}
}

// holds judges a condition by what Get of its key returned.
func holds(c storage.Condition, value []byte, err error) bool {
	if err != nil {
		return (model{}).satisfies(c)
	}
	return model{string(c.Key): string(value)}.satisfies(c)
}

// spoilOpenings returns a flaw that each opening of a Shared store has by itself.
func spoilOpenings(what string, breaks []string, spoil func(*flawed)) flaw {
	return flaw{what, breaks, nil, func() Adapter {
		spoiled := func(s storage.Storage) storage.Storage {
			f := withOpening(s)
			spoil(f)
			return sharing{f}
		}
		return Adapter{
			Open: func(testing.TB) storage.Storage { return spoiled(NewFaulty(new(memory.Store), nil)) },
			Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
				return spoiled(again(s.(storage.Wrapper).Unwrap()))
			},
		}
	}}
}

// readLate makes s apply a batch whose context has ended with the next batch of the same committer: where a committer
// writes nothing else meanwhile, no two goroutines race for its bytes.
func readLate(s *flawed) {
	var mu sync.Mutex
	late := map[byte][]storage.Batch{}
	s.commit = func(ctx context.Context, b storage.Batch) error {
		committer := bytes.TrimPrefix(b.Ops[0].Key, []byte("neighbour"))[0]
		mu.Lock()
		before := late[committer]
		late[committer] = nil
		mu.Unlock()
		for _, l := range before {
			s.Storage.Commit(context.Background(), storage.Batch{Ops: l.Ops})
		}
		for range 20 {
			runtime.Gosched()
		}
		if ctx.Err() == nil {
			return s.Storage.Commit(ctx, b)
		}
		mu.Lock()
		defer mu.Unlock()
		late[committer] = append(late[committer], b)
		return ctx.Err()
	}
}

// compressed returns the size of b when it is compressed.
func compressed(b []byte) int {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestSpeed)
	w.Write(b)
	w.Close()
	return out.Len()
}

// lockOnlyWrites makes s evaluate a batch while holding locks only on the keys that the
// batch writes.
func lockOnlyWrites(s *flawed) {
	var mu sync.Mutex
	locks := map[string]*sync.Mutex{}
	lock := func(key string) *sync.Mutex {
		mu.Lock()
		defer mu.Unlock()
		if locks[key] == nil {
			locks[key] = new(sync.Mutex)
		}
		return locks[key]
	}
	write := readThenWrite(s.Storage)
	s.commit = func(ctx context.Context, b storage.Batch) error {
		var keys []string
		for _, o := range b.Ops {
			keys = append(keys, string(o.Key))
		}
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			l := lock(key)
			l.Lock()
			defer l.Unlock()
		}
		return write(ctx, b)
	}
}

// handOutOwnBytes makes s return values from a cache without copying them.
func handOutOwnBytes(s *flawed) {
	cache := map[string][]byte{}
	s.get = func(ctx context.Context, key []byte) ([]byte, error) {
		if v, ok := cache[string(key)]; ok {
			return v, nil
		}
		v, err := s.Storage.Get(ctx, key)
		if err == nil {
			cache[string(key)] = v
		}
		return v, err
	}
}

// keepCallersBytes makes s keep the caller's value without copying it, so that Get
// returns the bytes that the caller has there now.
func keepCallersBytes(s *flawed) {
	var mu sync.Mutex
	kept := map[string][]byte{}
	s.commit = func(ctx context.Context, b storage.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range b.Ops {
			kept[string(o.Key)] = o.Value
		}
		return s.Storage.Commit(ctx, b)
	}
	s.get = func(ctx context.Context, key []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if v, ok := kept[string(key)]; ok {
			return bytes.Clone(v), nil
		}
		return s.Storage.Get(ctx, key)
	}
}

// starveOne makes one committer wait as long as others arrive, and then fail.
func starveOne(s *flawed) {
	var others atomic.Int64
	s.commit = func(ctx context.Context, b storage.Batch) error {
		if len(b.Ops) == 0 || !strings.HasPrefix(string(b.Ops[0].Key), "mine63:") {
			others.Add(1)
			return s.Storage.Commit(ctx, b)
		}
		last, since := others.Load(), time.Now()
		for time.Since(since) < time.Second { // on a busy machine the others stand still for some milliseconds
			time.Sleep(time.Millisecond)
			switch n := others.Load(); {
			case n > 10_000:
				return errors.New("busy")
			case n > last:
				last, since = n, time.Now()
			}
		}
		return s.Storage.Commit(ctx, b)
	}
}

// judgeThePast makes s evaluate a batch's conditions against the state before the last
// acknowledged batch.
func judgeThePast(s *flawed) {
	var mu sync.Mutex
	was := map[string]string{}
	s.commit = func(ctx context.Context, b storage.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range b.If {
			if v, ok := was[string(c.Key)]; ok && !(model{string(c.Key): v}).satisfies(c) {
				clear(was)
				return storage.ErrConflict
			}
		}
		clear(was)
		for _, o := range b.Ops {
			if v, err := s.Storage.Get(ctx, o.Key); err == nil {
				was[string(o.Key)] = string(v)
			}
		}
		return s.Storage.Commit(ctx, b)
	}
}
