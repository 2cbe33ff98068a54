package reads

import "sync"

// callsAtOnce is how many calls Gather makes at once.
const callsAtOnce = 16

// Gather calls f for each of some, several at once, and returns the results in order.
func Gather[A, B any](some []A, f func(A) (B, error)) ([]B, error) {
	all := make([]B, len(some))
	errs := make([]error, len(some))
	var calls sync.WaitGroup
	free := make(chan struct{}, callsAtOnce)
	for i, a := range some {
		free <- struct{}{}
		calls.Go(func() {
			defer func() { <-free }()
			all[i], errs[i] = f(a)
		})
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// GatherUpTo is Gather until the results have a size of most together: it may return fewer.
func GatherUpTo[A, B any](most int, some []A, size func(B) int, f func(A) (B, error)) (all []B, _ error) {
	for most > 0 && len(all) < len(some) {
		next, err := Gather(some[len(all):min(len(all)+callsAtOnce, len(some))], f)
		if err != nil {
			return nil, err
		}
		for _, b := range next {
			most -= size(b)
		}
		all = append(all, next...)
	}
	return all, nil
}
