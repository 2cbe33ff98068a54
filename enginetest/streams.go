package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A writer is an operation that has written to a stream.
type writer struct{ run, stream, operation string }

// readStreams records the chunks of all operations that succeeded, those of attempts that failed included. What
// others have written depends on when they were ended.
func (p *played) readStreams(ctx context.Context, s storage.Storage) {
	outside, err := p.outside(s)
	if err != nil {
		return
	}
	defer outside.Close()
	p.chunks = map[writer][]string{}
	for id := range p.ends {
		if err := p.readStreamsOf(ctx, outside, s, id); err != nil {
			p.note("streams of "+id, fmt.Sprintf("streams of %s: %v", id, err))
		}
	}
}

func (p *played) readStreamsOf(ctx context.Context, outside *engine.Engine, s storage.Storage, id string) error {
	var succeeded map[string]bool // by operation
	for head, err := range storage.All(ctx, s, keys.StreamsOf(id)) {
		if err != nil {
			return err
		}
		if succeeded == nil {
			succeeded = successes(ctx, outside, id)
		}
		name, err := keys.Last(head.Key)
		if err != nil {
			return err
		}
		wf, err := journal.Load(ctx, s, id)
		if err != nil {
			return err
		}
		log := chunks.Of(id, name, wf.Generation)
		for from := uint64(0); ; {
			page, err := log.Chunks(ctx, s, from, chunks.AppendChunks)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			from += uint64(len(page))
			for _, c := range page {
				if w := (writer{id, name, c.Operation}); succeeded[c.Operation] {
					p.chunks[w] = append(p.chunks[w], string(c.Data))
				}
			}
		}
	}
	return nil
}

// successes are the operations of a run that succeeded.
func successes(ctx context.Context, eng *engine.Engine, id string) map[string]bool {
	all := map[string]bool{}
	for c, err := range eng.History(ctx, id) {
		if err != nil {
			break // the end of the run, which was read before, says what is wrong
		}
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindSettled && e.Error == "" && e.Category == "" {
				all[e.Operation] = true
			}
		}
	}
	return all
}

// streams reports what is in a stream undisturbed, and is missing here, or in another order. There may be more here: an
// attempt that is made again may write again what the one before has written, or only the rest.
func (p *played) streams(calm *played) (fs []finding) {
	for _, w := range slices.SortedFunc(maps.Keys(calm.chunks), func(a, b writer) int {
		return cmp.Or(strings.Compare(a.run, b.run), strings.Compare(a.stream, b.stream), strings.Compare(a.operation, b.operation))
	}) {
		was, is := calm.chunks[w], p.chunks[w]
		if calm.varying[w] || within(was, is) {
			continue
		}
		fs = append(fs, finding{fmt.Sprint("stream ", w), []string{
			fmt.Sprintf("operation %s of %s has not written to stream %q what it writes undisturbed:", w.operation, w.run, w.stream),
			"    here         " + cut(strings.Join(is, " ")),
			"    undisturbed  " + cut(strings.Join(was, " ")),
			"An attempt that follows another one writes everything again, or goes on behind what is stored. An attempt",
			"that notes its progress calls Flush before.",
		}})
	}
	return fs
}

// within reports whether all has part in this order, possibly with other things in between.
func within(part, all []string) bool {
	for _, s := range all {
		if len(part) > 0 && s == part[0] {
			part = part[1:]
		}
	}
	return len(part) == 0
}
