// Package integrity checks that the records of a store agree with each other.
//
// Each commit leaves the store in a state that has all of these properties, so they may be
// checked at any time, as long as nobody writes meanwhile. Tests check them after commits and
// at the end of scenarios.
//
//   - Each workflow that was not purged has exactly the entries in lists (ix, ls, ll, lp, la) that
//     follow from its record, and the lists have nothing else.
//   - A workflow that has ended has an output, and one that has not has none, unless an
//     operator resumed or reset it after an end, in this life or an earlier one.
//   - A workflow that has not ended has an owner if and only if there is a held entry with
//     both. The entry by which a workflow without an owner is found exists.
//   - A slot of a queue is occupied by the workflow that says so, and the line of a queue has
//     the workflows that wait to be admitted.
//   - A parent's record of a child (kid) belongs to a workflow that exists. Unless the parent
//     has ended, was reset to before it began the child, or the record has the child's end, the
//     child exists, has not ended, and names this parent.
//   - A run that keeps its children on its deployment has one. Each of its children is on a
//     deployment, and keeps its own children there.
//   - A record of an activity's effect (act) and the progress of an attempt (beat) belong to a
//     workflow that exists.
//   - A signal that waits was accepted, and has one place in the inbox. Each place has a signal
//     that waits.
//   - An update waits, or was accepted or refused, but not both. A workflow with one says so. One that
//     was accepted, or whose workflow was not terminated, is answered before the workflow ends.
//   - An accepted signal, the answer to an update, and a tombstone have an entry that says when they expire (exp).
//     Nothing is left long after that.
//   - A token belongs to a hook of a run that has not ended, and each hook (hk) of such a run has its
//     token. A run with hooks says that it needs them.
//   - The chunks of a stream are those that its head counts, and of the generation of a workflow that exists and
//     says that it needs streams.
//   - A run has no checkpoint and no record of an operation (act, beat, kid) of an earlier life,
//     unless an entry (exp) says when these are removed.
//   - The entry that says when to look at a schedule (due) exists if its record names one. One that
//     is not paused has one unless it has no more times.
//   - The record of a deployment (dep) is under an id that a deployment may have, and its digest
//     and its artifact's are SHA-256.
//   - The runs and streams of a world are as world.Check says.
package integrity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/bulk"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/schedule"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
)

// Overdue is how long after its time an entry that expires is accepted: an engine may have to
// make sure of the time first, and none may be running.
const Overdue = 2 * time.Hour

// Check returns what is wrong with the records of s, in the order of their keys. now is the
// time by which expired entries are judged; zero means that they are not.
func Check(ctx context.Context, s storage.Storage, now time.Time) (problems []string) {
	c := &checked{
		history:   func(wf *journal.Workflow) iter.Seq2[checkpoint.Checkpoint, error] { return journal.History(ctx, s, wf) },
		now:       now,
		stored:    map[string]bool{},
		workflows: map[string]*journal.Workflow{},
		logs:      map[string]*journal.Workflow{},
		expiring:  map[string]bool{},
		places:    map[string]int{},
		chunks:    map[string]uint64{},
	}
	for e, err := range storage.All(ctx, s, storage.Range{}) {
		if err != nil {
			return []string{err.Error()}
		}
		parts, err := storage.SplitKey(e.Key)
		if err != nil {
			c.wrong(e.Key, "%v", err)
			continue
		}
		c.entries = append(c.entries, entry{e, parts})
		c.stored[string(e.Key)] = true
		switch {
		case parts[0] == "wf" && len(parts) == 2:
			var wf *journal.Workflow
			if wf, err = journal.OpenWorkflow(parts[1], e.Value); err == nil {
				c.workflows[wf.ID], c.logs[string(wf.Log().Prefix())] = wf, wf
			}
		case parts[0] == "exp":
			var kind string
			var names []string
			kind, names, err = keys.Expiring(e.Key)
			c.expiring[string(storage.AppendKey([]byte(kind+":"), names...))] = true
		}
		if err != nil {
			c.wrong(e.Key, "%v", err)
		}
	}
	for _, e := range c.entries { // in the order of keys: places before signals
		c.check(e)
	}
	return append(c.problems, world.Check(ctx, s)...)
}

// A checked store is what was read of it.
type checked struct {
	history   func(*journal.Workflow) iter.Seq2[checkpoint.Checkpoint, error]
	now       time.Time
	entries   []entry
	stored    map[string]bool              // keys
	workflows map[string]*journal.Workflow // by id
	logs      map[string]*journal.Workflow // by the prefix of the keys of their checkpoints
	expiring  map[string]bool              // by kind and names
	places    map[string]int               // in inboxes, by the key of the signal
	chunks    map[string]uint64            // of streams, by the key of the head
	problems  []string
}

// An entry is an entry of the store with the components of its key.
type entry struct {
	storage.Entry
	parts []string
}

func (c *checked) wrong(key []byte, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf("%s: ", key)+fmt.Sprintf(format, args...))
}

func (c *checked) has(key []byte) bool { return c.stored[string(key)] }

// families are the families of keys, with the number of components of a key and the check of
// an entry. Those without a check are about no workflow, or are hints that may be out of date.
var families = map[string]struct {
	components []int
	check      func(c *checked, e entry)
}{
	"wf":     {[]int{2, 3, 4}, (*checked).workflow},
	"log":    {[]int{3}, (*checked).checkpoint},
	"ix":     {[]int{2}, (*checked).listed},
	"ls":     {[]int{5}, (*checked).listed},
	"ll":     {[]int{6}, (*checked).listed},
	"lp":     {[]int{3}, (*checked).listed},
	"la":     {[]int{2}, (*checked).listed},
	"held":   {[]int{3}, (*checked).held},
	"todo":   {[]int{5}, nil},
	"wake":   {[]int{4}, nil},
	"op":     {[]int{4}, (*checked).line},
	"slot":   {[]int{3}, (*checked).slot},
	"rate":   {[]int{2}, nil},
	"kid":    {[]int{3}, (*checked).child},
	"act":    {[]int{5}, (*checked).effect},
	"beat":   {[]int{3}, (*checked).progress},
	"sig":    {[]int{4}, (*checked).signal},
	"sigres": {[]int{4}, (*checked).accepted},
	"sigseq": {[]int{2}, func(c *checked, e entry) { c.belongs(e) }},
	"inbox":  {[]int{3}, (*checked).place},
	"hook":   {[]int{2}, (*checked).hookAddress},
	"hk":     {[]int{3}, (*checked).hook},
	"hres":   {[]int{3}, (*checked).resumed},
	"stream": {[]int{3}, (*checked).stream},
	"chunk":  {[]int{4}, (*checked).chunk},
	"upd":    {[]int{3}, (*checked).update},
	"upr":    {[]int{3}, (*checked).answer},
	"exp":    {[]int{5, 6}, (*checked).expires},
	"eng":    {[]int{2}, nil},
	"dep":    {[]int{2}, (*checked).deployment},
	"sch":    {[]int{2}, (*checked).schedule},
	"due":    {[]int{4}, nil},
	"bulk":   {[]int{2}, (*checked).bulk},
	"bref":   {[]int{3}, (*checked).refusals},
	"meta":   {[]int{2}, nil},

	// Of package idempotency, whose own tests check them.
	"idem":    {[]int{5}, nil},
	"idemexp": {[]int{6}, nil},
	"idemver": {[]int{4}, nil},
	"idemown": {[]int{2}, nil},

	// Of package world: world.Check checks them.
	"world":   {[]int{2, 3, 4}, nil},
	"wtok":    {[]int{2}, nil},
	"whk":     {[]int{2}, nil},
	"wcor":    {[]int{4}, nil},
	"wix":     {[]int{4}, nil},
	"wstream": {[]int{3}, nil},
	"wchunk":  {[]int{4}, nil},
	"wsname":  {[]int{3}, nil},
	"wexp":    {[]int{4, 5}, nil},

	// Of its queues, whose own tests check them.
	"wmsg":  {[]int{3}, nil},
	"wdue":  {[]int{4}, nil},
	"wheld": {[]int{4}, nil},
	"wkey":  {[]int{3}, nil},

	// Of package control, likewise.
	"ctl": {[]int{2, 3, 4}, nil},
}

func (c *checked) schedule(e entry) {
	r, err := schedule.Open(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case r.Due != nil && !c.has(r.Due):
		c.wrong(e.Key, "its entry %s is missing", r.Due)
	case r.Due == nil && (len(r.Triggered) > 0 || r.Pause == nil && r.Continues()):
		c.wrong(e.Key, "it has times to come, and nothing has an engine look at it")
	}
}

func (c *checked) bulk(e entry) {
	r, err := bulk.Open(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case r.EndedAt != 0 && (len(r.Page) > 0 || r.Rest):
		c.wrong(e.Key, "it has ended, and something is left to do")
	case len(r.Page) > 0 && !r.Begun:
		c.wrong(e.Key, "it has a page, and was not begun")
	}
}

func (c *checked) refusals(e entry) {
	list, err := bulk.OpenRefusals(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case len(list) == 0:
		c.wrong(e.Key, "it is empty")
	case !c.has(keys.Bulk(e.parts[1])):
		c.wrong(e.Key, "its bulk is missing")
	}
}

func (c *checked) deployment(e entry) {
	d, err := deployment.Open(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case !deployment.ValidID(d.ID):
		c.wrong(e.Key, "no deployment may have this id")
	case len(d.Digest) != 0 && len(d.Digest) != sha256.Size, d.Artifact != nil && len(d.Artifact.SHA256) != sha256.Size:
		c.wrong(e.Key, "a digest is no SHA-256")
	}
}

func (c *checked) check(e entry) {
	f, known := families[e.parts[0]]
	switch {
	case !known:
		c.wrong(e.Key, "no such family of keys")
	case !slices.Contains(f.components, len(e.parts)):
		c.wrong(e.Key, "a key of this family has no %d components", len(e.parts))
	case f.check != nil:
		f.check(c, e)
	}
}

// belongs returns the workflow that e belongs to, by the second component of its key. It is
// nil, and reported, if there is none, and nil if it was purged: then a purge is deleting e.
func (c *checked) belongs(e entry) *journal.Workflow {
	wf := c.workflows[e.parts[1]]
	if wf == nil {
		c.wrong(e.Key, "there is no such workflow")
		return nil
	}
	if wf.Tombstone() {
		return nil
	}
	return wf
}

// checkpoint checks a checkpoint that is not stored under the id of its workflow.
func (c *checked) checkpoint(e entry) {
	wf := c.logs[string(keys.LogOf(e.parts[1]).Prefix())]
	switch {
	case wf == nil:
		c.wrong(e.Key, "there is no such workflow")
	case !wf.Tombstone(): // otherwise a purge is deleting it
		if _, own, err := journal.OpenEntry(wf, e.Entry); err == nil && !own {
			c.wrong(e.Key, "it is of another generation")
		}
		c.former(e, wf, bytes.Compare(e.Key, wf.Log().Checkpoint(wf.Base)) < 0)
	}
}

func (c *checked) workflow(e entry) {
	wf := c.belongs(e)
	if wf == nil {
		if len(e.parts) == 2 && c.workflows[e.parts[1]] != nil {
			c.tombstone(e, c.workflows[e.parts[1]])
		}
		return
	}
	if len(e.parts) == 4 && e.parts[2] == "ckpt" && !wf.Log().Has(e.Key) {
		c.wrong(e.Key, "the checkpoints of the workflow are stored elsewhere")
		return
	}
	if len(e.parts) > 2 {
		c.former(e, wf, wf.Log().Has(e.Key) && bytes.Compare(e.Key, wf.Log().Checkpoint(wf.Base)) < 0)
		return
	}
	for _, row := range wf.Rows() {
		if !c.has(row) {
			c.wrong(e.Key, "its entry %s in a list is missing", row)
		}
	}
	if !c.has(keys.Input(wf.ID)) {
		c.wrong(e.Key, "it has no input")
	}
	switch has := c.has(keys.Output(wf.ID)); {
	case wf.Status.Terminal() && !has:
		c.wrong(e.Key, "it is %s, and has no output", wf.Status)
	case !wf.Status.Terminal() && has && len(wf.Retries)+len(wf.Resets) == 0 && wf.Life == 0:
		c.wrong(e.Key, "it is %s, and has an output", wf.Status)
	}
	if wf.Status.Terminal() {
		return
	}
	if (wf.Life > 0) != slices.Contains(wf.Needs, "lives") {
		c.wrong(e.Key, "it is in life %d, and needs %v", wf.Life, wf.Needs)
	}
	if wf.Owner != "" && !c.has(keys.Held(wf.Owner, wf.ID)) {
		c.wrong(e.Key, "it is owned by %s, and there is no held entry", wf.Owner)
	}
	if wf.Owner == "" && wf.Todo != nil && !c.has(wf.Todo) {
		c.wrong(e.Key, "its entry %s is missing", wf.Todo)
	}
	if wf.Owner == "" && wf.Todo == nil && wf.Status == checkpoint.StatusPending {
		c.wrong(e.Key, "it is pending, and nothing has an engine find it")
	}
	if wf.KeepsChildren() && wf.Deployment == "" {
		c.wrong(e.Key, "its children are to start on its deployment, and it has none")
	}
	if wf.Slot > 0 && !c.has(keys.Slot(wf.Queue, wf.Slot)) {
		c.wrong(e.Key, "its slot %d of queue %q is free", wf.Slot, wf.Queue)
	}
}

// former checks e, which belongs to wf, and to an earlier life of it if former is true.
func (c *checked) former(e entry, wf *journal.Workflow, former bool) {
	if former && !c.expiring[string(storage.AppendKey([]byte("life:"), wf.ID, wf.Generation))] {
		c.wrong(e.Key, "it belongs to an earlier life of the workflow, and no entry has it removed")
	}
}

func (c *checked) tombstone(e entry, wf *journal.Workflow) {
	if !c.expiring[string(storage.AppendKey([]byte("tomb:"), wf.ID, wf.Generation))] {
		c.wrong(e.Key, "no entry says when this tombstone expires")
	}
}

func (c *checked) listed(e entry) {
	id, err := journal.OpenRow(e.Entry)
	if err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	if wf := c.workflows[id]; wf == nil || !wf.Listed(e.Key) {
		c.wrong(e.Key, "it lists workflow %q, whose record does not say so", id)
	}
}

func (c *checked) held(e entry) {
	if wf := c.workflows[e.parts[2]]; wf == nil || wf.Status.Terminal() || wf.Owner != e.parts[1] {
		c.wrong(e.Key, "%s does not own the workflow", e.parts[1])
	}
}

func (c *checked) line(e entry) {
	if wf := c.workflows[e.parts[3]]; wf == nil || wf.Status.Terminal() || !wf.Waits || wf.Queue != e.parts[1] || string(wf.Todo) != string(e.Key) {
		c.wrong(e.Key, "the workflow does not wait in this place of this queue")
	}
}

func (c *checked) slot(e entry) {
	var s journal.Slot
	if _, err := record.Open(e.Key, e.Value, journal.Version, &s); err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	if wf := c.workflows[s.ID]; wf == nil || wf.Status.Terminal() || wf.Generation != s.Generation || wf.Slot == 0 || string(keys.Slot(wf.Queue, wf.Slot)) != string(e.Key) {
		c.wrong(e.Key, "workflow %q does not occupy this slot", s.ID)
	}
}

func (c *checked) child(e entry) {
	parent := c.belongs(e)
	kid, err := journal.OpenChild(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
		return
	case parent == nil:
		return
	case kid.Parent != parent.Generation:
		c.wrong(e.Key, "it is of generation %s of the parent, which has generation %s", kid.Parent, parent.Generation)
	}
	c.former(e, parent, parent.Former(e.parts[2]))
	if kid.End != nil || parent.Status.Terminal() { // no end of a child is recorded any more
		return
	}
	wf := c.workflows[kid.ID]
	if (wf == nil || wf.Status.Terminal()) && !c.begins(parent, e.parts[2]) { // it had ended while its parent was ended
		return
	}
	switch {
	case wf == nil || wf.Tombstone():
		c.wrong(e.Key, "there is no child %q, and its end is not recorded", kid.ID)
	case wf.Status.Terminal():
		c.wrong(e.Key, "child %q is %s, and its end is not recorded", kid.ID, wf.Status)
	case wf.Parent == nil || wf.Parent.ID != parent.ID || wf.Parent.Generation != parent.Generation || wf.Parent.Operation != e.parts[2]:
		c.wrong(e.Key, "child %q has another parent: %+v", kid.ID, wf.Parent)
	case parent.KeepsChildren() && !wf.KeepsChildren():
		c.wrong(e.Key, "child %q was not started on deployment %q of its parent, or another one", kid.ID, parent.Deployment)
	}
}

// begins reports whether the history of a workflow begins a child by the operation, and no reset has
// passed over that.
func (c *checked) begins(wf *journal.Workflow, operation string) bool {
	if len(wf.Resets) == 0 {
		return true
	}
	for cp, err := range c.history(wf) {
		if err != nil {
			c.wrong(keys.Workflow(wf.ID), "%v", err)
			return true
		}
		for i, ev := range cp.Events {
			if ev.Kind == checkpoint.KindStarted && ev.Operation == operation && !wf.PassedOver(journal.Place{Checkpoint: cp.Number, Event: i}) {
				return true
			}
		}
	}
	return false
}

func (c *checked) progress(e entry) {
	if wf := c.belongs(e); wf != nil {
		c.former(e, wf, wf.Former(e.parts[2]))
	}
}

func (c *checked) effect(e entry) {
	wf := c.belongs(e)
	if wf != nil {
		c.former(e, wf, wf.Former(e.parts[3]))
	}
	r, err := reconcile.OpenRecord(e.parts[1], e.parts[2], e.parts[3], e.parts[4], e.Value)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case wf != nil && r.Generation != wf.Generation:
		c.wrong(e.Key, "it is of generation %s of the workflow, which has generation %s", r.Generation, wf.Generation)
	}
}

func (c *checked) signal(e entry) {
	if c.belongs(e) == nil {
		return
	}
	if !c.has(keys.Accepted(e.parts[1], e.parts[2], e.parts[3])) {
		c.wrong(e.Key, "the signal waits, and was not accepted")
	}
	if n := c.places[string(e.Key)]; n != 1 {
		c.wrong(e.Key, "the signal has %d places in the inbox", n)
	}
}

func (c *checked) place(e entry) {
	if c.belongs(e) == nil {
		return
	}
	w, err := acceptance.OpenPlace(e.Entry)
	if err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	signal := keys.Signal(e.parts[1], w.Name, w.ID)
	if c.places[string(signal)]++; !c.has(signal) {
		c.wrong(e.Key, "signal %q of %q does not wait", w.ID, w.Name)
	}
}

func (c *checked) update(e entry) {
	wf := c.belongs(e)
	if wf == nil {
		return
	}
	u, err := acceptance.OpenUpdate(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case u.Generation != wf.Generation:
		c.wrong(e.Key, "it is of generation %s of the workflow, which has generation %s", u.Generation, wf.Generation)
	case c.has(keys.Answer(wf.ID, u.ID)):
		c.wrong(e.Key, "the update waits, and was accepted or refused")
	case !wf.Updated():
		c.wrong(e.Key, "the workflow does not say that it has an update")
	}
}

func (c *checked) answer(e entry) {
	wf := c.belongs(e)
	if wf == nil {
		return
	}
	a, err := acceptance.OpenAnswer(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case a.Generation != wf.Generation:
		c.wrong(e.Key, "it is of generation %s of the workflow, which has generation %s", a.Generation, wf.Generation)
	case !wf.Updated():
		c.wrong(e.Key, "the workflow does not say that it has an update")
	case a.State == acceptance.Accepted:
		if wf.Status.Terminal() && (wf.Cancel == nil || !wf.Cancel.Terminated) {
			c.wrong(e.Key, "the update was accepted and not answered, and the workflow is %s", wf.Status)
		}
	case !c.expiring[string(storage.AppendKey([]byte("upd:"), e.parts[1:]...))]:
		c.wrong(e.Key, "no entry says when the answer expires")
	}
}

func (c *checked) accepted(e entry) {
	if c.belongs(e) == nil {
		return
	}
	a, err := acceptance.OpenAccepted(e.Entry)
	if err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	if payload := keys.Signal(e.parts[1], e.parts[2], e.parts[3]); a.WorkflowID != e.parts[1] || a.SignalName != e.parts[2] || a.SignalID != e.parts[3] || a.SignalStorageKey != string(payload) {
		c.wrong(e.Key, "its response is of another signal: %+v", a)
	}
	if !c.expiring[string(storage.AppendKey([]byte("sig:"), e.parts[1:]...))] {
		c.wrong(e.Key, "no entry says when it expires")
	}
}

func (c *checked) hookAddress(e entry) {
	a, err := journal.OpenHookAddress(e.Entry)
	if err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	wf := c.workflows[a.WorkflowID]
	switch {
	case wf == nil || wf.Tombstone() || wf.Status.Terminal() || !a.Of(wf):
		c.wrong(e.Key, "workflow %q, which has this token, has ended", a.WorkflowID)
	case !c.has(keys.Hook(a.WorkflowID, a.HookID)):
		c.wrong(e.Key, "workflow %q has no hook %s", a.WorkflowID, a.HookID)
	}
}

func (c *checked) hook(e entry) {
	wf := c.belongs(e)
	h, err := journal.OpenHook(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case wf == nil:
	case h.Generation != wf.Generation:
		c.wrong(e.Key, "it is of generation %s of the workflow, which has generation %s", h.Generation, wf.Generation)
	case !wf.HasHooks():
		c.wrong(e.Key, "the workflow does not say that it needs hooks: %v", wf.Needs)
	case !wf.Status.Terminal() && !c.has(keys.HookAddress(h.TokenHash)):
		c.wrong(e.Key, "the hook is open, and nothing has its token")
	}
}

func (c *checked) stream(e entry) {
	wf := c.belongs(e)
	h, err := chunks.OpenHead(e.Entry)
	switch {
	case err != nil:
		c.wrong(e.Key, "%v", err)
	case wf == nil:
	case h.Generation != wf.Generation:
		c.wrong(e.Key, "it is of generation %s of the workflow, which has generation %s", h.Generation, wf.Generation)
	case !wf.HasStreams():
		c.wrong(e.Key, "the workflow does not say that it needs streams: %v", wf.Needs)
	case c.chunks[string(e.Key)] != h.Count:
		c.wrong(e.Key, "it counts %d chunks, and there are %d", h.Count, c.chunks[string(e.Key)])
	}
}

func (c *checked) chunk(e entry) {
	wf := c.belongs(e)
	k, err := chunks.OpenChunk(e.Entry)
	if err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	if wf == nil {
		return
	}
	head := keys.Stream(e.parts[1], e.parts[2])
	switch n := c.chunks[string(head)]; {
	case !c.has(head):
		c.wrong(e.Key, "there is no such stream")
	case k.Index != n:
		c.wrong(e.Key, "it follows chunk %d", int64(n)-1)
	case k.Generation != wf.Generation:
		c.wrong(e.Key, "it is of generation %s of the workflow, which has generation %s", k.Generation, wf.Generation)
	}
	c.chunks[string(head)]++
}

func (c *checked) resumed(e entry) {
	if _, err := acceptance.OpenAccepted(e.Entry); err != nil {
		c.wrong(e.Key, "%v", err)
	}
	if !c.expiring[string(storage.AppendKey([]byte("hres:"), e.parts[1:]...))] {
		c.wrong(e.Key, "no entry says when it expires")
	}
}

func (c *checked) expires(e entry) {
	at, err := keys.Expires(e.Key)
	if err != nil {
		c.wrong(e.Key, "%v", err)
		return
	}
	if e.parts[2] == "kids" {
		if wf := c.workflows[e.parts[3]]; wf == nil || wf.Tombstone() || !wf.Status.Terminal() || wf.Generation != e.parts[4] {
			c.wrong(e.Key, "its children are to be asked to stop, and it has not ended in this generation")
		}
		return
	}
	if !c.now.IsZero() && c.now.Sub(at) > Overdue {
		c.wrong(e.Key, "it expired %v ago, and is still there", c.now.Sub(at))
	}
}
