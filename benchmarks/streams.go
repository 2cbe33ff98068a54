package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/stream"
)

// streamed measures streams: chunks of 100 bytes by the hundred and one by one, which compare with grouped and with
// single raw rows; and how long a chunk takes to be stored, and to reach a reader in the process and, where several processes
// may have the store open, one in another.
var streamed = &Workload{Name: "w13", Title: "W13: one stream, chunks of 100 bytes", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(streams), Beside: readBeside}

const (
	chunksEach = 100
	streamedID = "streamed"
)

var words = &stream.Stream[string]{Name: "words"}

func streams(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	read := make(chan int64, 1) // the place of a chunk that a reader has got
	word := strings.Repeat("w", 98)
	write := &activity.Activity[string, int]{Name: "write", Timeout: time.Hour, Run: func(ctx context.Context, _ string) (int, error) {
		w := words.Writer(ctx)
		total := int64(0)
		some := func(n int) error {
			for range n {
				if err := w.Write(word); err != nil {
					return err
				}
				total++
			}
			return w.Flush()
		}
		arrive := func() {
			for at := range read {
				if at == total-1 {
					return
				}
			}
		}
		for _, size := range []int{chunksEach, 1} {
			_, _, err := repeat(c.Warm, func() error { return some(size) })
			if err != nil {
				return 0, err
			}
			n, took, err := repeat(c.Load/2, func() error { return some(size) })
			if err != nil {
				return 0, err
			}
			c.report(fmt.Sprintf("chunks/s, %d at once", size), float64(n*size)/took.Seconds())
		}
		arrive()
		var stored, arrived []time.Duration
		for range c.Samples {
			time.Sleep(lowLoad)
			began := time.Now()
			if err := some(1); err != nil {
				return 0, err
			}
			stored = append(stored, time.Since(began))
			arrive()
			arrived = append(arrived, time.Since(began))
		}
		c.reportLatency("write to stored", stored)
		c.reportLatency("write to reader", arrived)
		if !s.Capabilities().Shared {
			return 1, nil
		}
		arrived, err := c.sampleBeside(ctx, func() (index int64, err error) {
			index = total
			return index, some(1)
		})
		c.reportLatency("write to reader in another process", arrived)
		return 1, err
	}}
	wf := &engine.Workflow[string, int]{Name: "writes", Func: func(run *engine.Run, _ string) (int, error) { return write.Do(run, "") }}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{wf}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.Close()
	return whileRunning(ctx, e, func() error {
		h, err := wf.Start(ctx, e, streamedID, "")
		if err != nil {
			return err
		}
		reading := make(chan error, 1)
		go func() {
			for chunk, err := range words.Read(ctx, e, h.ID(), 0) {
				if err != nil {
					reading <- err
					return
				}
				select { // only the last one counts
				case <-read:
				default:
				}
				read <- chunk.Index
			}
			reading <- nil
		}()
		_, err = h.Result(ctx)
		return errors.Join(err, <-reading)
	})
}

// An arrival is when a reader in another process got a chunk.
type arrival struct {
	Index int64
	At    time.Time
}

// sampleBeside returns how long chunks take to a reader in another process. write writes one, and returns its place.
func (c *Child) sampleBeside(ctx context.Context, write func() (index int64, err error)) (took []time.Duration, err error) {
	h, err := c.hire(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.dismiss()) }()
	arrivals := json.NewDecoder(h.out)
	var a arrival
	if err := arrivals.Decode(&a); err != nil { // of the last chunk before
		return nil, err
	}
	for range c.Samples {
		time.Sleep(lowLoad)
		began := time.Now()
		index, err := write()
		for err == nil && a.Index < index {
			err = arrivals.Decode(&a)
		}
		if err != nil {
			return took, err
		}
		took = append(took, a.At.Sub(began))
	}
	return took, nil
}

// readBeside reads the stream from its last chunk on, and says when each came.
func readBeside(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	wf := &engine.Workflow[string, int]{Name: "writes", Func: func(*engine.Run, string) (int, error) { return 0, nil }}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{wf}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.Close()
	ctx = untilDismissed(ctx)
	out := json.NewEncoder(os.Stdout)
	for chunk, err := range words.Read(ctx, e, streamedID, -1) {
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = out.Encode(arrival{chunk.Index, time.Now()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
