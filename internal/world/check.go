package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Check returns what is wrong with the records of runs and streams in a store, as long as nobody writes meanwhile. It is for
// tests.
//
//   - The events of a run are those that its head counts. An event with a correlation is in the list of that, and the list has
//     nothing else.
//   - A run is in the lists that follow from its head, and these have nothing else.
//   - An open hook of a run that has not ended has its token and its id, and a token and an id belong to such a hook.
//   - A run that has ended, or was removed, and a stream without a run, have an entry that says since when.
//   - The chunks of a stream are those that its head counts, and the list of its name has its run.
func Check(ctx context.Context, s storage.Storage) (problems []string) {
	c := &checker{stored: map[string][]byte{}, heads: map[string]*head{}, events: map[string]uint64{}, live: map[string]int{}, chunks: map[string]uint64{}}
	var all []storage.Entry
	for _, family := range []string{"world:", "wtok:", "whk:", "wcor:", "wix:", "wstream:", "wchunk:", "wsname:", "wexp:"} {
		for e, err := range storage.All(ctx, s, storage.Prefix([]byte(family))) {
			if err != nil {
				return []string{err.Error()}
			}
			all = append(all, e)
			c.stored[string(e.Key)] = e.Value
		}
	}
	parts := make([][]string, len(all))
	for i, e := range all {
		var err error
		if parts[i], err = storage.SplitKey(e.Key); err == nil && parts[i][0] == "world" && len(parts[i]) == 2 {
			c.heads[parts[i][1]], err = openHead(parts[i][1], e.Value)
		}
		if err != nil {
			c.wrong(e.Key, "%v", err)
			return c.problems
		}
	}
	for i, e := range all { // what is counted
		switch p := parts[i]; {
		case p[0] == "world" && len(p) == 4 && p[2] == "ev":
			c.event(p[1], e)
		case p[0] == "world" && len(p) == 4 && p[2] == kindLive:
			c.live[p[1]]++
			c.open(p[1], p[3], e)
		case p[0] == "wchunk":
			c.chunk(p, e)
		}
	}
	for i, e := range all {
		switch p := parts[i]; p[0] {
		case "world":
			if h := c.heads[p[1]]; h == nil {
				c.wrong(e.Key, "there is no such run")
			} else if len(p) == 2 {
				c.head(h, e)
			}
		case "wtok", "whk":
			if o, err := openOwner(e.Key, e.Value); err != nil || !c.has(keys.WorldEntity(o.Run, kindLive, o.Hook)) {
				c.wrong(e.Key, "no open hook has this token or id: %v", err)
			}
		case "wcor":
			if n, err := keys.Number(e.Key); err != nil || !c.has(keys.WorldEvent(p[2], n)) {
				c.wrong(e.Key, "there is no such event: %v", err)
			}
		case "wix":
			if h := c.heads[p[3]]; h == nil || h.Removed > 0 || !slices.Contains([]string{"all ", "name " + h.Name, "status " + string(h.Status)}, p[1]+" "+p[2]) {
				c.wrong(e.Key, "the run does not belong there")
			}
		case "wstream":
			c.stream(p, e)
		case "wsname":
			if !c.has(keys.WorldStream(p[2], p[1])) {
				c.wrong(e.Key, "there is no such stream")
			}
		}
	}
	return c.problems
}

// A checker is what was read of a world.
type checker struct {
	stored   map[string][]byte
	heads    map[string]*head
	events   map[string]uint64 // by run
	live     map[string]int    // likewise: open hooks
	chunks   map[string]uint64 // by the key of the head
	problems []string
}

func (c *checker) wrong(key []byte, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf("%s: ", key)+fmt.Sprintf(format, args...))
}

func (c *checker) has(key []byte) bool {
	_, ok := c.stored[string(key)]
	return ok
}

// needs reports keys that are missing.
func (c *checker) needs(e storage.Entry, all ...[]byte) {
	for _, k := range all {
		if !c.has(k) {
			c.wrong(e.Key, "its entry %s is missing", k)
		}
	}
}

func (c *checker) head(h *head, e storage.Entry) {
	if h.Removed > 0 { // its other records are being removed
		if !c.has(keys.WorldExpiry(keys.WorldRunKept, at(h.Removed), h.run)) {
			c.needs(e, keys.WorldExpiry(keys.WorldRunRemoved, at(h.Removed), h.run))
		}
		return
	}
	c.needs(e, keys.WorldListed("all", "", h.run), keys.WorldListed("name", h.Name, h.run), keys.WorldListed("status", string(h.Status), h.run))
	if h.Status.Ended() {
		c.needs(e, keys.WorldExpiry(keys.WorldRunEnded, at(h.Ended), h.run))
	}
	switch {
	case c.events[h.run] != h.Seq:
		c.wrong(e.Key, "it counts %d events, and there are %d", h.Seq, c.events[h.run])
	case c.live[h.run] != h.Hooks, h.Status.Ended() && h.Hooks > 0:
		c.wrong(e.Key, "it is %s and counts %d open hooks, and there are %d", h.Status, h.Hooks, c.live[h.run])
	case h.Input == 0, h.Input > h.Seq, h.Outcome > h.Seq, h.SeqInBand > h.Seq, h.Status.Ended() != (h.Outcome > 0):
		c.wrong(e.Key, "it names events that it does not have: %+v", h)
	}
}

func (c *checker) event(run string, e storage.Entry) {
	h := c.heads[run]
	if h == nil || h.Removed > 0 {
		return
	}
	n, err := keys.Number(e.Key)
	var v *event
	if err == nil {
		v, err = openEvent(h, n, e.Value)
	}
	if c.events[run]++; err != nil || n != c.events[run] {
		c.wrong(e.Key, "it follows event %d: %v", c.events[run]-1, err)
		return
	}
	if v.Correlation != "" {
		c.needs(e, keys.WorldCorrelated(v.Correlation, run, n))
	}
}

func (c *checker) open(run, id string, e storage.Entry) {
	k, err := openHook(run, id, c.stored[string(keys.WorldEntity(run, kindHook, id))])
	if err != nil || k.Disposed > 0 {
		c.wrong(e.Key, "there is no such hook that is open: %v", err)
		return
	}
	c.needs(e, keys.WorldToken(keys.TokenHash(k.Token)), keys.WorldHookRun(id))
}

func (c *checker) chunk(p []string, e storage.Entry) {
	k, err := chunks.OpenChunk(e)
	at := string(keys.WorldStream(p[1], p[2]))
	if h := c.heads[p[1]]; h != nil && h.Removed > 0 {
		return
	}
	if err != nil || k.Index != c.chunks[at] || !c.has([]byte(at)) {
		c.wrong(e.Key, "it follows chunk %d of its stream: %v", int64(c.chunks[at])-1, err)
	}
	c.chunks[at]++
}

func (c *checker) stream(p []string, e storage.Entry) {
	h, err := chunks.OpenHead(e)
	run := c.heads[p[1]]
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case run != nil && run.Removed > 0:
	case c.chunks[string(e.Key)] != h.Count:
		c.wrong(e.Key, "it counts %d chunks, and there are %d", h.Count, c.chunks[string(e.Key)])
	case run == nil && !c.early(p[1]):
		c.wrong(e.Key, "it has no run, and nothing has it removed")
	default:
		c.needs(e, keys.WorldStreamNamed(p[2], p[1]))
	}
}

// early reports whether an entry says that a stream of a run was begun before the run was there.
func (c *checker) early(run string) bool {
	for k := range c.stored {
		if strings.HasPrefix(k, "wexp:"+keys.WorldStreamEarly+":") {
			if last, err := keys.Last([]byte(k)); err == nil && last == run {
				return true
			}
		}
	}
	return false
}
