package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// ReadValue is Engine.ReadValue.
func (e *Reader) ReadValue(ctx context.Context, id, name string, value any) error {
	call := waiting.New(ctx, "value "+waiting.Quoted(name)+" of workflow", id)
	waiting.For(call, "the store to read")
	return call.Explain(e.readValue(call, id, name, value))
}

func (e *Reader) readValue(ctx context.Context, id, name string, value any) error {
	if err := checkValue(id, name); err != nil {
		return err
	}
	if err := e.Refused(); err != nil {
		return err
	}
	p, err := e.published(ctx, id, name)
	if err != nil {
		return err
	}
	if p == nil {
		if _, err := e.Load(ctx, id); err != nil {
			return err
		}
		return &weft.NoValueError{WorkflowID: id, Name: name}
	}
	return e.decodeValue(ctx, id, name, p, value)
}

func checkValue(id, name string) error {
	return errors.Join(payload.CheckID(id), payload.CheckName("name of value", name, keys.MaxName))
}

// published reads a value; nil means that there is none.
func (e *Reader) published(ctx context.Context, id, name string) (*journal.Published, error) {
	key := keys.Published(id, name)
	raw, err := e.Store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, p, err := journal.OpenPublished(storage.Entry{Key: key, Value: raw})
	return p, err
}

func (e *Reader) decodeValue(ctx context.Context, id, name string, p *journal.Published, value any) error {
	if err := e.Codecs.Decode(ctx, payload.Payload{Codec: p.Codec, Data: p.Data}, value); err != nil {
		return fmt.Errorf("engine: value %q of %q: %w", name, id, err)
	}
	return nil
}

// AwaitValue is Engine.AwaitValue.
func (e *Reader) AwaitValue(ctx context.Context, id, name string, enough func(decode func(value any) error) (bool, error)) error {
	call := waiting.New(ctx, "value "+waiting.Quoted(name)+" of workflow", id)
	waiting.For(call, "the store to read")
	return call.Explain(e.awaitValue(call, id, name, enough))
}

func (e *Reader) awaitValue(ctx context.Context, id, name string, enough func(decode func(value any) error) (bool, error)) error {
	if err := checkValue(id, name); err != nil {
		return err
	}
	changed, release := e.Observe(id)
	defer release()
	for {
		wf, err := e.Load(ctx, id) // before the value: if it has ended, the value is its last one
		if err != nil {
			return err
		}
		p, err := e.published(ctx, id, name)
		if err != nil {
			return err
		}
		waiting.For(ctx, "the workflow to set it")
		if p != nil && p.Generation == wf.Generation {
			done, err := enough(func(value any) error { return e.decodeValue(ctx, id, name, p, value) })
			if done || err != nil {
				return err
			}
			waiting.For(ctx, "another value")
		}
		if wf.Status.Terminal() {
			return &weft.TerminalError{WorkflowID: id, Status: wf.Status}
		}
		if err := e.observe(ctx, changed); err != nil {
			return err
		}
	}
}

// observe waits for a notification, or until it is time to read the store again.
func (e *Reader) observe(ctx context.Context, changed <-chan struct{}) error {
	look := time.NewTimer(e.PollInterval)
	defer look.Stop()
	select {
	case <-changed:
	case <-look.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.Closing:
		return weft.ErrClosed
	}
	return nil
}

// Values is Engine.Values.
func (e *Reader) Values(ctx context.Context, id string) iter.Seq2[weft.ValueInfo, error] {
	return func(yield func(weft.ValueInfo, error) bool) {
		wf, err := e.Load(ctx, id)
		if err != nil {
			yield(weft.ValueInfo{}, err)
			return
		}
		r := keys.PublishedBy(id)
		r.Limit = keys.PayloadPage
		for entry, err := range storage.All(ctx, e.Store, r) {
			var v weft.ValueInfo
			if err == nil {
				var p *journal.Published
				v.Name, p, err = journal.OpenPublished(entry)
				if err == nil && p.Generation != wf.Generation {
					continue // of a workflow that is being purged
				}
				if err == nil {
					v.SetAt, v.Value = journal.Time(p.At), encoded(p.Codec, p.Data)
				}
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}
