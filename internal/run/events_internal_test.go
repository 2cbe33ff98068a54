package run

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
)

// A panic in any callback is logged with its name, and those that give a context give the one
// that they got. A callback that is nil stays nil.
func TestGuarded(t *testing.T) {
	all := reflect.TypeFor[weft.Events]()
	var ev weft.Events
	for i := range all.NumField() {
		name := all.Field(i).Name
		reflect.ValueOf(&ev).Elem().Field(i).Set(reflect.MakeFunc(all.Field(i).Type, func([]reflect.Value) []reflect.Value { panic("oh, " + name) }))
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	guarded, none := Guarded(ev, logger), Guarded(weft.Events{}, logger)
	for i := range all.NumField() {
		f := reflect.ValueOf(guarded).Field(i)
		if f.IsNil() {
			t.Errorf("Guarded drops %s", all.Field(i).Name)
			continue
		}
		var args []reflect.Value
		for n := range f.Type().NumIn() {
			args = append(args, reflect.New(f.Type().In(n)).Elem())
		}
		if len(args) == 2 {
			args[0] = reflect.ValueOf(t.Context())
		}
		log.Reset()
		for _, out := range f.Call(args) {
			if out.Interface() != any(t.Context()) {
				t.Errorf("%s returned %v after its panic", all.Field(i).Name, out)
			}
		}
		if !strings.Contains(log.String(), "oh, "+all.Field(i).Name) || !strings.Contains(log.String(), "Events."+all.Field(i).Name) {
			t.Errorf("the panic of %s is logged as %q", all.Field(i).Name, log.String())
		}
		if !reflect.ValueOf(none).Field(i).IsNil() {
			t.Errorf("%s, which was nil, is not", all.Field(i).Name)
		}
	}
}

// Nobody pays for callbacks that are nil.
func TestNoCallbacksAllocateNothing(t *testing.T) {
	e := &Env{}
	x := &Execution{host: &Host{}, Hold: &journal.Hold{Workflow: &journal.Workflow{}}}
	o := &operation{x: x, kind: ofActivity}
	ctx := activity.NewContext(context.Background(), activity.Info{}, nil)
	s := &PreparedStart{host: x.host, Workflow: &journal.Workflow{}}
	a := &answer{}
	allocated := testing.AllocsPerRun(100, func() {
		s.announced = false
		s.Announce(ctx)
		s.tellStarted()
		x.announce()
		x.leave(nil)
		x.caughtUp()
		e.Changed(&journal.Workflow{}, x.Hold.Workflow)
		x.tellRetry(o, logged{})
		x.tellReceived(o, logged{})
		_, c := e.tellCall(ctx, o)
		c.answered(ctx, a)
		c.verified(ctx, false, nil)
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}
