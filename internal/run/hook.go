package run

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

const (
	maxHooks    = 1000 // that a run may have open
	hooksAtOnce = 100  // that one checkpoint opens or disposes of
	hookBytes   = 1 << 10
)

// MostHooks is how many hooks a run may have open: the commit that ends the run frees the tokens of
// all of them, and the commit of a retry takes them again, with a condition for each.
func (e *Env) MostHooks() int {
	return max(1, min(maxHooks, (e.MaxOps-Spare)/2, e.MaxBytes/hookBytes))
}

// hooks are the open hooks of a run, and what the function has asked for.
type hooks struct {
	open   map[string]*journal.Hook // by id; nil: not read yet
	asked  []*operation             // to open or to dispose of a hook, in the order in which they began
	nobody map[string]bool          // operations that have opened a hook when their scope had ended
}

// A hooking operation opens a hook, or disposes of it.
type hooking struct {
	dispose string // the id of the hook; "": opens one
	chosen  string // token; "": one is minted

	// What examine has found.
	token  string
	holder *journal.HookAddress // which hook has the token; nil: none
	is     *journal.Hook        // as it is to be stored, or is to be disposed of; nil: refused, or disposed of before
	result payload.Payload
}

// OpenHook is engine.Run.OpenHook.
func (r *Handle) OpenHook(name, token string) future.Operation {
	if err := storage.Require(r.x.host.Store, "a hook", "conditionalBatch"); err != nil {
		return refusal{err}
	}
	op := r.startOperation(ofHook, name, nil)
	o, ok := op.(*operation)
	if !ok || o.done {
		return op
	}
	o.hook = &hooking{}
	if token == "" {
		return op
	}
	full, err := r.x.tokenOf(token)
	if err == nil {
		var digest [sha256.Size]byte
		digest, err = payload.DigestOf(full)
		o.digest = payload.Fingerprint(digest[:])
	}
	if err != nil {
		o.settle(outcome{err: err})
	}
	o.hook.chosen = full
	return op
}

// tokenOf returns a token that the run has chosen, with the run's namespace.
func (x *Execution) tokenOf(token string) (full string, err error) {
	full, ours := x.named(token)
	_, in, of := namespace.Split(full)
	if x.Hold.Workflow.Namespace() == "" {
		in, of = token, token[0] != '@'
	}
	if !ours || !of {
		return "", fmt.Errorf("%w: token of a hook begins with '@'", weft.ErrInvalid)
	}
	return full, CheckToken(in, keys.MaxToken)
}

// MaxFullToken is the maximum length of a token with its namespace.
const MaxFullToken = keys.MaxToken + namespace.MaxProject + namespace.MaxEnvironment + len("@//")

// CheckToken returns ErrInvalid if no hook can have the token. The error does not show the token.
func CheckToken(token string, most int) error {
	switch {
	case token == "":
		return fmt.Errorf("%w: token of a hook is empty", weft.ErrInvalid)
	case len(token) > most:
		return fmt.Errorf("%w: token of a hook has %d bytes, at most %d", weft.ErrInvalid, len(token), most)
	case !utf8.ValidString(token):
		return fmt.Errorf("%w: token of a hook is not UTF-8", weft.ErrInvalid)
	}
	return nil
}

// DisposeHook is engine.Run.DisposeHook.
func (r *Handle) DisposeHook(name, id string) future.Operation {
	op := r.startOperation(ofDisposal, name, nil)
	if o, ok := op.(*operation); ok && !o.done {
		o.hook = &hooking{dispose: id}
	}
	return op
}

// openHooks returns the open hooks of the run. Only its owner changes them, so they are read once.
func (x *Execution) openHooks() (map[string]*journal.Hook, error) {
	if x.hooks.open != nil {
		return x.hooks.open, nil
	}
	hs, err := journal.Hooks(x.Ctx, x.store, x.Hold.Workflow)
	if err != nil {
		return nil, err
	}
	x.hooks.open = make(map[string]*journal.Hook, len(hs))
	for _, h := range hs {
		x.hooks.open[h.ID] = h
	}
	return x.hooks.open, nil
}

// lookForTokens reads which hooks have the tokens that the next checkpoint is about.
func (x *Execution) lookForTokens() error {
	for _, o := range x.hooks.asked[:min(len(x.hooks.asked), hooksAtOnce)] {
		if !o.open {
			continue
		}
		open, err := x.openHooks()
		if err != nil {
			return err
		}
		if err := o.examineHook(open); err != nil {
			return err
		}
	}
	return nil
}

// examineHook finds out what o does: open a hook, take over its own, dispose of it, or nothing.
func (o *operation) examineHook(open map[string]*journal.Hook) (err error) {
	x, h := o.x, o.hook
	if h.dispose != "" {
		h.holder = nil
		if h.is = open[h.dispose]; h.is != nil {
			h.holder, err = journal.ReadHookAddress(x.Ctx, x.store, h.is.TokenHash)
		}
		if h.holder != nil && h.holder.HookID != h.dispose {
			h.holder = nil // the store is damaged: leave the other one its token
		}
		return err
	}
	if h.token == "" {
		if h.token = h.chosen; h.token == "" {
			h.token, _ = x.named(rand.Text())
		}
	}
	hash := keys.TokenHash(h.token)
	if h.holder, err = journal.ReadHookAddress(x.Ctx, x.store, hash); err != nil {
		return err
	}
	is := journal.Hook{Generation: x.Hold.Workflow.Generation, TokenHash: hash}
	switch {
	case h.holder == nil && h.is != nil && open[h.is.ID] == nil:
		return nil // examined before
	case h.holder == nil:
		is.ID = "hook_" + x.host.NewID()
	case x.takesOver(h.holder, open):
		is = *open[h.holder.HookID]
	default:
		h.is = nil
		return nil
	}
	is.Name, is.Operation = o.name, o.id
	h.is = &is
	var p payload.Payload
	err = x.awaitCodec(apart(func() (err error) {
		p, err = x.host.encode(signal.Opened{ID: is.ID, Token: h.token})
		return err
	}))
	if err == errStopped { // p may still be written to
		return err
	}
	if h.result = p; err != nil {
		return &fault{reason: weft.ReasonBadDefinition, operation: o.id, name: o.name, cause: err}
	}
	return nil
}

// takesOver reports whether a hook that has a token belongs to the run, and nobody in this life has it.
func (x *Execution) takesOver(a *journal.HookAddress, open map[string]*journal.Hook) bool {
	if !a.Of(x.Hold.Workflow) || open[a.HookID] == nil {
		return false
	}
	by := open[a.HookID].Operation
	return x.Hold.Workflow.Former(by) || x.hooks.nobody[by]
}

// hooked is what a decision does to the hooks of a run.
type hooked struct {
	asked    int // how many were taken from hooks.asked
	opened   []*journal.Hook
	disposed []*journal.Hook
	more     int      // how many more hooks the run has then
	tokens   []string // hashes
}

// hook adds to a decision what o does. It returns false if o must wait for another checkpoint.
func (x *Execution) hook(o *operation, d *decision) (e checkpoint.Event, fits bool, err error) {
	c, h := &d.Change, o.hook
	switch {
	case h.is != nil && slices.Contains(d.hooked.tokens, h.is.TokenHash), len(c.Ops) > 0 && x.room(c) < 4:
		return e, false, nil
	case h.is != nil:
		d.hooked.tokens = append(d.hooked.tokens, h.is.TokenHash)
	case h.holder != nil:
		hash := keys.TokenHash(h.token)
		if slices.Contains(d.hooked.tokens, hash) {
			return e, false, nil
		}
		d.hooked.tokens = append(d.hooked.tokens, hash)
	}
	if h.holder != nil {
		c.If = append(c.If, h.holder.Unchanged())
	}
	if h.dispose != "" {
		if h.is != nil {
			c.If = append(c.If, h.is.Unchanged())
			c.Ops = append(c.Ops, h.is.Delete())
			d.hooked.disposed = append(d.hooked.disposed, h.is)
			d.hooked.more--
		}
		if h.is != nil && h.holder != nil {
			c.Ops = append(c.Ops, h.is.Free())
		}
		e = o.event(checkpoint.KindDisposed)
		if h.is != nil {
			e.Key, e.Was = h.is.ID, h.is.Raw()
		}
		return e, true, nil
	}
	e = o.event(checkpoint.KindSettled)
	most := x.host.MostHooks()
	switch {
	case h.is == nil:
		e.Child, e.Error = h.holder.WorkflowID, (&signal.TokenError{WorkflowID: h.holder.WorkflowID}).Error()
		return e, true, nil
	case h.holder != nil:
		was := x.hooks.open[h.is.ID]
		c.If = append(c.If, was.Unchanged())
		e.Was = was.Raw()
	case len(x.hooks.open)+d.hooked.more >= most:
		e.Error = fmt.Sprintf("the run has %d open hooks, and may have no more: dispose of those that it does not need", most)
		return e, true, nil
	default:
		free, put, err := h.is.Occupy(x.Hold.Workflow)
		if err != nil {
			return e, false, err
		}
		c.If, c.Ops = append(c.If, free), append(c.Ops, put)
		d.hooked.more++
	}
	is, put, err := h.is.Put(x.ID)
	if err != nil {
		return e, false, err
	}
	c.Ops = append(c.Ops, put)
	d.hooked.opened = append(d.hooked.opened, is)
	if !x.Hold.Workflow.HasHooks() {
		x.rewriting(c).OpensHook()
	}
	e.Kind, e.Key, e.Result, e.Codec = checkpoint.KindOpened, is.ID, h.result.Data, h.result.Codec
	return e, true, nil
}

// unclaimed notes that an operation has opened a hook, and the function does not learn of it.
func (hs *hooks) unclaimed(operation string) {
	if hs.nobody == nil {
		hs.nobody = map[string]bool{}
	}
	hs.nobody[operation] = true
}

// changed notes what a commit has done to the hooks.
func (hs *hooks) changed(d *hooked) {
	for _, h := range d.opened {
		hs.open[h.ID] = h
	}
	for _, h := range d.disposed {
		delete(hs.open, h.ID)
	}
	hs.asked = hs.asked[d.asked:]
}

// refusedHook returns the error of an operation that did not open a hook.
func (o *operation) refusedHook(e logged) error {
	switch {
	case e.Kind != checkpoint.KindSettled:
		return nil
	case e.Child != "":
		return &signal.TokenError{WorkflowID: e.Child}
	}
	return fmt.Errorf("%w: hook %s: %s", weft.ErrBusy, o.name, e.Error)
}

// freeTokens returns the operations that free the tokens of all hooks, for the commit that ends the
// run. That commit is refused if the run has changed since its hooks were read.
func (x *Execution) freeTokens() (ops []storage.Op, err error) {
	if !x.Hold.Workflow.HasHooks() {
		return nil, nil
	}
	open, err := x.openHooks()
	for _, h := range open {
		ops = append(ops, h.Free())
	}
	slices.SortFunc(ops, func(a, b storage.Op) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return ops, err
}
