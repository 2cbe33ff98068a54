package w4

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	oldmaps "golang.org/x/exp/maps"

	"github.com/weft-go/weft/engine"
)

func sorted(run *engine.Run, m map[string]int) (errs error) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		_, err := charge.Do(run, k)
		errs = errors.Join(errs, err)
	}
	return errs
}

func sortedKeys(run *engine.Run, m map[string]int) error {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if _, err := charge.Do(run, k); err != nil {
			return err
		}
	}
	return nil
}

func sortedLater(run *engine.Run, m map[string]int) string {
	keys := slices.Collect(maps.Keys(m))
	slices.Sort(keys)
	for _, k := range keys {
		return k
	}
	return ""
}

func anotherSequence(run *engine.Run, m map[string]int, list []string) string {
	keys := maps.Keys(m)
	if len(list) > 0 {
		keys = slices.Values(list)
	}
	for k := range keys {
		return k
	}
	return ""
}

// What is asked of the run begins nothing.
func asks(run *engine.Run, m map[string]int) (n int) {
	for k := range m {
		at, _ := run.Nominal()
		m[k] = run.HistoryLen() + run.Version("change") + at.Day()
		n++
	}
	return n
}

// A label and a published value are no operations, and are set in any order.
func tags(run *engine.Run, m map[string]string) (errs error) {
	for k, v := range m {
		errs = errors.Join(errs, run.SetLabel(k, v))
	}
	return errs
}

func publishes(run *engine.Run, m map[*engine.Value[int]]int) (errs error) {
	for v, n := range m {
		errs = errors.Join(errs, publish(run, v, n))
	}
	return errs
}

func publish(run *engine.Run, v *engine.Value[int], n int) error { return v.Set(run, n) }

func sums(run *engine.Run, m map[string]int) (sum int) {
	for _, v := range m {
		if v < 0 {
			continue
		}
		sum += v
	}
	return sum
}

func copies(run *engine.Run, m map[string]int) map[string]int {
	c := map[string]int{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

// It is found or not, in whichever order.
func contains(run *engine.Run, m map[string]int) bool {
	for _, v := range m {
		if v == 7 {
			return true
		}
	}
	return false
}

var errNegative = errors.New("negative")

func checks(run *engine.Run, m map[string]int) error {
	for k, v := range m {
		if v < 0 || k == "" {
			return errNegative
		}
	}
	return nil
}

func flags(run *engine.Run, m map[string]int) (found bool) {
	for k := range m {
		if k == "x" {
			found = true
			break
		}
	}
	return found
}

// The break and the continue are of the inner statements, and the return of the literal.
func inner(run *engine.Run, m map[string][]int) int {
	n := 0
	for _, list := range m {
		for _, v := range list {
			if v == 0 {
				break
			}
			n++
		}
		switch len(list) {
		case 3:
			break
		}
		slices.SortFunc(list, func(a, b int) int { return cmp.Compare(a, b) })
	}
	return n
}

func ownLabel(run *engine.Run, m map[string][]int) (n int) {
next:
	for _, list := range m {
		for _, v := range list {
			if v == 0 {
				continue next
			}
		}
		n++
	}
	return n
}

func overSlice(run *engine.Run, list []string) (string, error) {
	for _, k := range list {
		if _, err := charge.Do(run, k); err != nil {
			return k, err
		}
	}
	return "", nil
}

func logs(run *engine.Run, m map[string]int) {
	for k, v := range m {
		run.Logger().Info("has", k, v)
	}
}

// It gets a Run, and begins nothing with it.
func tells(run *engine.Run, k string) { run.Logger().Info(k) }

func toldAll(run *engine.Run, m map[string]int) {
	for k := range m {
		tells(run, k)
	}
}

func inStep(run *engine.Run, m map[string]int) (string, error) {
	return engine.Step(run, "pick", func(context.Context) (string, error) {
		for k := range m {
			return k, nil
		}
		return "", nil
	})
}

func server(m map[string]int) string {
	for k := range m {
		return k
	}
	return ""
}

func deletes(run *engine.Run, m map[string]int) {
	for k, v := range m {
		if v == 0 {
			delete(m, k)
		}
	}
}

func oldSorted(run *engine.Run, m map[string]int) string {
	keys := oldmaps.Keys(m)
	slices.Sort(keys)
	for _, k := range keys {
		return k
	}
	return ""
}

func countsSync(run *engine.Run, m *sync.Map) (n int) {
	for range m.Range {
		n++
	}
	m.Range(func(_, _ any) bool { n++; return true })
	return n
}
