// Package w4 depends on the order of maps.
package w4

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	oldmaps "golang.org/x/exp/maps"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
)

var charge = &activity.Activity[string, int]{Name: "charge", Run: func(ctx context.Context, s string) (int, error) { return 1, nil }}

func begins(run *engine.Run, m map[string]int) (errs error) {
	for k := range m { // want `a range over a map that begins operations, or waits for them, in workflow code: the order of a map is another in each replay; range over its sorted keys \(W4\)`
		_, err := charge.Do(run, k)
		errs = errors.Join(errs, err)
	}
	return errs
}

func starts(run *engine.Run, m map[string]int) (fs []*future.Future[int]) {
	for k := range m { // want `a range over a map that begins operations`
		fs = append(fs, charge.Go(run, k))
	}
	return fs
}

func waits(run *engine.Run, m map[string]*future.Future[int]) (errs error) {
	for _, f := range m { // want `a range over a map that begins operations, or waits`
		_, err := f.Get(run)
		errs = errors.Join(errs, err)
	}
	return errs
}

func throughFunction(run *engine.Run, m map[string]int) {
	for k := range m { // want `a range over a map that begins operations`
		logged(run, k)
	}
}

func logged(run *engine.Run, k string) {
	if _, err := charge.Do(run, k); err != nil {
		run.Logger().Error(err.Error())
	}
}

func throughClosure(run *engine.Run, m map[string]int) {
	one := func(k string) { logged(run, k) }
	for k := range m { // want `a range over a map that begins operations`
		one(k)
	}
}

func branches(run *engine.Run, m map[string]int) error {
	var fs []*future.Future[int]
	for k := range m { // want `a range over a map that begins operations`
		fs = append(fs, engine.Go(run, "b", func(run *engine.Run) (int, error) { return charge.Do(run, k) }))
	}
	_, err := engine.All(run, fs...)
	return err
}

func random(run *engine.Run, m map[string]int) {
	for k := range m { // want `a range over a map that begins operations`
		m[k] = run.Random().IntN(3)
	}
}

func returns(run *engine.Run, m map[string]int) (string, error) {
	for k, v := range m { // want `a range over a map that ends with a return in workflow code`
		if v > 1 {
			return k, nil
		}
	}
	return "", nil
}

func returnsFirstError(run *engine.Run, m map[string]func() error) error {
	for _, f := range m { // want `a range over a map that ends with a return`
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func breaks(run *engine.Run, m map[string]int) (first string) {
	for k := range m { // want `a range over a map that ends with a break`
		first = k
		break
	}
	return first
}

func counted(run *engine.Run, m map[string]int) (sum int) {
	for _, v := range m { // want `a range over a map that ends with a break`
		sum += v
		if sum > 100 {
			break
		}
	}
	return sum
}

func leavesOuter(run *engine.Run, ms []map[string]int) (keys []string) {
outer:
	for _, m := range ms {
		for k, v := range m { // want `a range over a map that ends with a continue`
			if v > 1 {
				continue outer
			}
			keys = append(keys, k)
		}
	}
	return keys
}

func differently(run *engine.Run, m map[string]int) string {
	for _, v := range m { // want `a range over a map that ends with a return`
		if v == 1 {
			return "one"
		}
		if v == 2 {
			return "two"
		}
	}
	return ""
}

func iterator(run *engine.Run, m map[string]int) string {
	for k := range maps.Keys(m) { // want `a range over a map that ends with a return`
		return k
	}
	return ""
}

func collected(run *engine.Run, m map[string]int) (errs error) {
	for _, k := range slices.Collect(maps.Keys(m)) { // want `a range over a map that begins operations`
		_, err := charge.Do(run, k)
		errs = errors.Join(errs, err)
	}
	return errs
}

func iteratorVariable(run *engine.Run, m map[string]int) string {
	keys := maps.Keys(m)
	for k := range keys { // want `a range over a map that ends with a return`
		return k
	}
	return ""
}

func collectedVariable(run *engine.Run, m map[string]int) string {
	keys := slices.Collect(maps.Keys(m))
	for _, k := range keys { // want `a range over a map that ends with a return`
		return k
	}
	return ""
}

func typeParameter[M ~map[string]V, V any](run *engine.Run, m M) string {
	for k := range m { // want `a range over a map that ends with a return`
		return k
	}
	return ""
}

func caller(run *engine.Run, m map[string]int) string { return anyKey(m) }

func anyKey(m map[string]int) string {
	for k := range m { // want `a range over a map that ends with a return in workflow code \(caller calls anyKey\)`
		return k
	}
	return ""
}

func oldKeys(run *engine.Run, m map[string]int) string {
	for _, k := range oldmaps.Keys(m) { // want `a range over a map that ends with a return`
		return k
	}
	return ""
}

func oldValues(run *engine.Run, m map[string]string) (errs error) {
	values := oldmaps.Values(m)
	for _, v := range values { // want `a range over a map that begins operations`
		_, err := charge.Do(run, v)
		errs = errors.Join(errs, err)
	}
	return errs
}

func syncMap(run *engine.Run, m *sync.Map) (first any) {
	for k := range m.Range { // want `a range over a map that ends with a break`
		first = k
		break
	}
	return first
}

func syncMapCallback(run *engine.Run, m *sync.Map) (errs error) {
	m.Range(func(k, _ any) bool { // want `a range over a map that begins operations`
		_, err := charge.Do(run, k.(string))
		errs = errors.Join(errs, err)
		return true
	})
	return errs
}
