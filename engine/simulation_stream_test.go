package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/stream"
)

// streams says whether streams are played. An eighth of the seeds do that.
func (s *simulation) streams() bool { return s.seed/32%8 == 1 }

// simLook is how long those who read streams wait for news.
const simLook = 239*time.Millisecond + 5113*time.Nanosecond

var talked = &stream.Stream[string]{Name: "said"}

// A speech is what one attempt writes to the stream of its run.
type speech struct {
	host   *opening
	claim  uint64 // under which it began
	stored int    // words
	words  int    // that it had written when it succeeded; 0: it has not
}

// A spoken stream is what is stored of that of a run.
type spoken struct {
	words    []string
	speeches map[string]*speech // by operation, attempt and number
	closed   string             // by this operation
}

func (l *laws) spokenOf(id string) *spoken {
	if l.spoken[id] == nil {
		l.spoken[id] = &spoken{speeches: map[string]*speech{}}
	}
	return l.spoken[id]
}

// talk is the workflow whose activities write to a stream.
func (s *simulation) talk(h *host) *engine.Workflow[shift, []string] {
	say := s.saying(h)
	return &engine.Workflow[shift, []string]{Name: "talk", Func: func(run *engine.Run, begun shift) ([]string, error) {
		all, naps := begun.All, begun.Naps
		for i, c := range begun.Chores {
			var v []int
			var err error
			switch c.Do {
			case "say":
				v = make([]int, 1)
				v[0], err = say.Do(run, c.V)
			case "both":
				a, b := say.Go(run, c.V), say.Go(run, c.V+500)
				v = make([]int, 2)
				if v[0], err = a.Get(run); err == nil {
					v[1], err = b.Get(run)
				}
			case "nap":
				err = s.sleep(run, naps, c.Ms)
				naps++
			case "hush": // while somebody speaks
				a := say.Go(run, c.V)
				err = s.sleep(run, naps, c.Ms)
				naps++
				if err == nil {
					err = talked.Close(run)
				}
				if err == nil {
					v = make([]int, 1)
					v[0], err = a.Get(run)
				}
			case "again":
				err = engine.ContinueAsNew(run, shift{begun.Chores[i+1:], all, naps})
			}
			if err != nil {
				return nil, err
			}
			for _, v := range v {
				all = append(all, fmt.Sprint(v))
			}
		}
		return all, nil
	}}
}

// saying is the activity that writes to the stream of its run. It succeeds also if that is closed.
func (s *simulation) saying(h *host) *activity.Activity[int, int] {
	return &activity.Activity[int, int]{
		Name: "say", Retry: activity.Retry{MaxAttempts: -1, Backoff: 1, MaxBackoff: 1},
		Run: func(ctx context.Context, v int) (int, error) {
			defer s.laws.begins(ctx, h.opening, false)()
			name, mine := s.laws.speaks(ctx, h.opening)
			i := activity.InfoFrom(ctx)
			w := talked.Writer(ctx)
			n := 2 + s.hash(6, "words", name)
			heeds := s.hash(2, "heeds", name) == 0
			for k := range n {
				if d := s.takes(ctx, 10*v+k) / 2; !heeds {
					time.Sleep(d)
				} else if err := nap(ctx, d); err != nil {
					return 0, err
				}
				switch err := w.Write(fmt.Sprint(name, " ", k)); {
				case errors.Is(err, stream.ErrClosed):
					s.meet("words after a close refused")
					return v, nil
				case errors.Is(err, stream.ErrStale):
					s.meet("words of another owner refused")
					return 0, err
				case err != nil:
					return 0, err
				}
			}
			if i.Attempt == 1 && v%4 == 0 {
				return 0, errBroke
			}
			s.laws.mu.Lock()
			defer s.laws.mu.Unlock()
			mine.words = n
			return v, nil
		},
	}
}

// speaks notes an attempt that is going to write, and returns its name.
func (l *laws) speaks(ctx context.Context, o *opening) (string, *speech) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := activity.InfoFrom(ctx)
	all, name := l.spokenOf(i.WorkflowID).speeches, ""
	for n := 0; name == "" || all[name] != nil; n++ {
		name = fmt.Sprint(i.Operation, "/", i.Attempt, "/", n)
	}
	mine := &speech{host: o}
	if run := l.of(i.WorkflowID); run.record != nil {
		mine.claim = run.record.Claim
	}
	all[name] = mine
	return name, mine
}

// converse has clients start runs that write to streams, and read these.
func (s *simulation) converse() {
	soon := func(most int) time.Duration { return time.Duration(s.dice.IntN(most)) * time.Millisecond }
	for i := range 1 + s.dice.IntN(3) {
		id := fmt.Sprint("talk", i)
		v := 60_000 + 1000*i
		cs := drawChores(s.dice, &v, 4, []string{"say", "say", "both", "nap", "again"})
		if s.dice.IntN(2) == 0 {
			cs = append(cs, chore{"hush", v + 1, 1 + s.dice.IntN(20)}, chore{"say", v + 2, 0})
		}
		s.spoke[id] = cs
		talk := s.talk(nil)
		s.client(id+" start", soon(300), func(ctx context.Context, e *engine.Engine) error {
			_, err := talk.Start(ctx, e, id, shift{Chores: cs})
			return err
		})
		if s.dice.IntN(3) == 0 {
			s.reset[id], s.resets[id] = true, 1
			s.goBack(id, id+" reset", soon(2000))
		}
		for n := range 1 + s.dice.IntN(2) {
			s.hearken(id, fmt.Sprint(id, " listen ", n), soon(1500))
		}
	}
}

// hearken has a client read the stream of a run until that has ended, through one engine after the other: each word once.
func (s *simulation) hearken(id, name string, after time.Duration) {
	var got []string
	s.client(name, after, func(ctx context.Context, e *engine.Engine) error {
		for c, err := range talked.Read(ctx, e, id, int64(len(got))) {
			if err != nil {
				return fmt.Errorf("%v", err) // also if the run was not started yet
			}
			if c.Index != int64(len(got)) {
				s.laws.mu.Lock()
				s.laws.wrong("WLD-70: a reader of %s gets word %d behind %q", id, c.Index, got)
				s.laws.mu.Unlock()
			}
			got = append(got, c.Data)
			s.meet("words read")
		}
		ended := s.hasEnded(id)
		s.laws.mu.Lock()
		defer s.laws.mu.Unlock()
		stored := s.laws.spokenOf(id)
		if stored.closed == "" && s.laws.of(id).ended == "" && !s.reset[id] {
			s.laws.wrong("WLD-71: a reader of %s ends, which goes on", id)
		}
		if !ended && !slices.Equal(got, stored.words[:min(len(got), len(stored.words))]) || ended && !slices.Equal(got, stored.words) {
			s.laws.wrong("WLD-70: a reader of %s has got %q of %q", id, got, stored.words)
		}
		if !ended {
			return errLater
		}
		return nil
	})
}

// A seizure is an append of words that is on its way until its run has another owner, or until a time.
type seizure struct {
	t     *turn
	run   string
	claim uint64 // under which the words were written
	until time.Time
}

// seize holds up t, now and then, if it appends words. Either its host stands still, so that another one takes the run over, or
// an operator resets the run meanwhile. It says whether it does.
func (s *simulation) seize(t *turn) bool {
	if !s.streams() || s.seized != nil || t.reply != nil || t.call.Method != "Commit" || len(s.living()) < 2 {
		return false
	}
	run := ""
	for _, op := range t.call.Batch.Ops {
		if parts, err := storage.SplitKey(op.Key); err == nil && parts[0] == "chunk" {
			run = parts[1]
		}
	}
	if s.spoke[run] == nil || s.dice.IntN(2) > 0 {
		return false
	}
	owner, claim := s.ownerOf(run)
	if owner != t.o {
		return false
	}
	s.seized = &seizure{t, run, claim, time.Now().Add(3 * simTTL)}
	if s.dice.IntN(2) == 0 {
		t.o.paused = s.seized.until
		s.note("pauses", t.where)
		return true
	}
	s.mu.Lock()
	s.reset[run], s.resets[run] = true, s.resets[run]+1
	s.mu.Unlock()
	s.goBack(run, fmt.Sprint(run, " reset after ", time.Since(s.began)), 0)
	s.note("delays", t.where)
	return true
}

// seizes lets what is held up go on in time.
func (s *simulation) seizes() {
	z := s.seized
	if z == nil {
		return
	}
	s.mu.Lock()
	waits := slices.Contains(s.parked, z.t)
	s.mu.Unlock()
	owner, claim := s.ownerOf(z.run)
	switch {
	case !waits || time.Now().After(z.until):
		s.seized = nil
	case owner != z.t.o || claim != z.claim:
		s.seized = nil
		s.meet("words held up until a takeover")
		z.t.o.paused = time.Time{}
		s.release(z.t)
	}
}

// ownerOf returns who owns a run, and under which claim.
func (s *simulation) ownerOf(run string) (*opening, uint64) {
	s.laws.mu.Lock()
	defer s.laws.mu.Unlock()
	r := s.laws.of(run).record
	if r == nil {
		return nil, 0
	}
	return s.laws.owners[r.Owner], r.Claim
}

// A headed stream is one that a batch changes.
type headed struct {
	was, is *chunks.Head
	added   []*chunks.Chunk
}

// streamed takes in a change of a key of a stream.
func (l *laws) streamed(t *touched, op storage.Op, parts []string, was map[string][]byte, gone bool) {
	if t.headed == nil {
		t.headed = &headed{was: new(chunks.Head), is: new(chunks.Head)}
	}
	value := storage.Entry{Key: op.Key, Value: op.Value}
	switch {
	case gone:
		l.wrong("%q is deleted, and its run is there", op.Key)
	case parts[0] == "chunk":
		c, err := chunks.OpenChunk(value)
		if err != nil {
			l.wrong("%v", err)
			return
		}
		if _, there := was[string(op.Key)]; there {
			l.wrong("%q is written again", op.Key)
		}
		t.headed.added = append(t.headed.added, c)
	default:
		var err error
		if t.headed.is, err = chunks.OpenHead(value); err != nil {
			l.wrong("%v", err)
		}
		if before, there := was[string(op.Key)]; there {
			if t.headed.was, err = chunks.OpenHead(storage.Entry{Key: op.Key, Value: before}); err != nil {
				l.wrong("%v", err)
			}
		}
	}
}

// spokeBefore judges what a batch of o's does to the stream of a run: words are added by attempts of the owner under its claim,
// each once and in the order of their writer, and not after a close or the end. Only the workflow closes a stream, once, and only a reset
// opens it again. It is called before the run's new record and checkpoints are taken in.
func (l *laws) spokeBefore(o *opening, t *touched) {
	if t.headed == nil {
		return
	}
	s := l.spokenOf(t.id)
	for _, c := range t.headed.added {
		var word, name string
		var k int
		if err := json.Unmarshal(c.Data, &word); err != nil {
			l.wrong("%v", err)
			continue
		}
		if _, err := fmt.Sscanf(word, "%s %d", &name, &k); err != nil {
			l.wrong("%q: %v", word, err)
			continue
		}
		by := s.speeches[name]
		switch {
		case c.Index != uint64(len(s.words)):
			l.wrong("word %d of %s follows %d", c.Index, t.id, len(s.words))
		case by == nil || !strings.HasPrefix(name, fmt.Sprint(c.Operation, "/", c.Attempt, "/")):
			l.wrong("word %q of %s is said to be of attempt %d of %s", word, t.id, c.Attempt, c.Operation)
		case k != by.stored:
			l.wrong("word %q of %s is stored, after %d words of that attempt", word, t.id, by.stored)
		case s.closed != "":
			l.wrong("word %q of %s is stored after the close", word, t.id)
		case t.lawful.ended != "":
			l.wrong("word %q of %s is stored after the end", word, t.id)
		case by.host != o || l.owners[t.lawful.record.Owner] != o || by.claim != t.lawful.record.Claim:
			l.wrong("word %q of %s, of %s under claim %d, is stored by %s; the run is %q's under claim %d", word, t.id, by.host.name, by.claim, o.name, t.lawful.record.Owner, t.lawful.record.Claim)
		}
		if by != nil {
			by.stored++
		}
		s.words = append(s.words, word)
		l.met("words stored")
	}
}

// spokeAfter is likewise, and is called after they are.
func (l *laws) spokeAfter(t *touched) {
	s := l.spoken[t.id]
	if s == nil {
		return
	}
	if h := t.headed; h != nil {
		if h.is.Count != uint64(len(s.words)) {
			l.wrong("the stream of %s counts %d words, and has %d", t.id, h.is.Count, len(s.words))
		}
		switch reset := resetBy(t) != nil; {
		case h.was.Closed == h.is.Closed:
		case h.was.Closed == "" && !closes(t.appended, h.is.Closed):
			l.wrong("the stream of %s is closed by operation %q, which its history does not say", t.id, h.is.Closed)
		case h.was.Closed == "":
			l.met("closed")
		case h.is.Closed != "" || !reset:
			l.wrong("the stream of %s was closed by operation %q, and is so by %q", t.id, h.was.Closed, h.is.Closed)
		default:
			l.met("opened again")
		}
		s.closed = h.is.Closed
	}
	if s.closed == "" && slices.ContainsFunc(t.appended, func(c checkpoint.Checkpoint) bool {
		return slices.ContainsFunc(c.Events, func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindClosed })
	}) {
		l.wrong("the history of %s has a close, and its stream is open", t.id)
	}
	if s.closed != "" && t.lawful.former[s.closed] {
		l.wrong("%s was reset to before operation %s, which still closes its stream", t.id, s.closed)
	}
	l.concluded(t, s)
}

// closes reports whether checkpoints say that an operation has closed a stream.
func closes(cs []checkpoint.Checkpoint, operation string) bool {
	return slices.ContainsFunc(cs, func(c checkpoint.Checkpoint) bool {
		return slices.ContainsFunc(c.Events, func(e checkpoint.Event) bool {
			return e.Kind == checkpoint.KindClosed && e.Operation == operation
		})
	})
}

// concluded judges that the success of an attempt is recorded after its words.
func (l *laws) concluded(t *touched, s *spoken) {
	for _, c := range t.appended {
		for _, e := range c.Events {
			if e.Kind != checkpoint.KindSettled || e.Error != "" || e.Category != "" || t.lawful.record == nil {
				continue
			}
			for n := 0; ; n++ {
				by := s.speeches[fmt.Sprint(e.Operation, "/", e.Attempt, "/", n)]
				if by == nil {
					break
				}
				if by.claim == t.lawful.record.Claim && by.stored < by.words {
					l.wrong("attempt %d of %s of %s has its result, and %d of its %d words are stored", e.Attempt, e.Operation, t.id, by.stored, by.words)
				}
			}
		}
	}
}

// unspoken says what is wrong with the results of the runs that write to streams.
func (s *simulation) unspoken(reader *engine.Engine) (problems []string) {
	for id, cs := range s.spoke {
		var want []string
		for _, c := range cs {
			switch c.Do {
			case "say", "hush":
				want = append(want, fmt.Sprint(c.V))
			case "both":
				want = append(want, fmt.Sprint(c.V), fmt.Sprint(c.V+500))
			}
		}
		got, err := s.talk(nil).Handle(reader, id).Result(context.Background())
		if err != nil || !slices.Equal(got, want) {
			problems = append(problems, fmt.Sprintf("%s: %q, %v, want %q", id, got, err, want))
		}
	}
	return problems
}
