package linear

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/weft-go/weft/storage"
)

const keys = 3 // of a set

// A state is the values of a set.
type state [keys]uint32

// A value is a number. Values up to shared are put by many clients; value 1 is stored as an
// empty value.
const (
	absent = uint32(0)
	shared = uint32(3)
)

func encode(v uint32) []byte {
	if v <= 1 {
		return []byte{}
	}
	return strconv.AppendUint(nil, uint64(v), 10)
}

func decode(raw []byte) uint32 {
	if len(raw) == 0 {
		return 1
	}
	v, err := strconv.ParseUint(string(raw), 10, 32)
	if err != nil {
		return math.MaxUint32 // a value that nobody puts
	}
	return uint32(v)
}

type kind uint8

const (
	getting kind = iota
	scanning
	committing
)

type input struct {
	set   int
	kind  kind
	key   int // of getting
	batch batch
}

type output struct {
	seen   state // for reads; for getting, only its key counts
	answer answer
}

type answer uint8

const (
	done answer = iota
	refused
	unknown
)

// never is the return time of a call of unknown outcome. The call may then be last in the
// order, where nobody sees its effect, as if it had none.
const never = math.MaxInt64

type batch struct {
	conditions []condition
	ops        []op
}

type condition struct {
	kind  storage.ConditionKind
	key   int
	value uint32
}

type op struct {
	kind  storage.OpKind
	key   int
	value uint32
}

func (b batch) holds(s state) bool {
	for _, c := range b.conditions {
		ok := s[c.key] != absent
		switch c.kind {
		case storage.IsAbsent:
			ok = !ok
		case storage.IsEqual:
			ok = s[c.key] == c.value
		}
		if !ok {
			return false
		}
	}
	return true
}

func (b batch) apply(s state) state {
	for _, o := range b.ops {
		switch o.kind {
		case storage.PutOp:
			s[o.key] = o.value
		case storage.DeleteOp:
			s[o.key] = absent
		default:
			s = state{}
		}
	}
	return s
}

// model is the contract for one set of keys.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, in, out any) (bool, any) { return step(before.(state), in.(input), out.(output)) },
}

func step(s state, in input, out output) (bool, state) {
	switch in.kind {
	case getting:
		return s[in.key] == out.seen[in.key], s
	case scanning:
		return s == out.seen, s
	}
	holds := in.batch.holds(s)
	switch {
	case out.answer == refused:
		return !holds, s
	case holds:
		return true, in.batch.apply(s)
	}
	return out.answer == unknown, s
}

// bySet splits a history by set. This is allowed because each call concerns one set, and
// histories are linearizable if they are so for each object separately.
func bySet(entries []porcupine.Operation) [][]porcupine.Operation {
	parts := make([][]porcupine.Operation, sets)
	for _, e := range entries {
		set := e.Input.(input).set
		parts[set] = append(parts[set], e)
	}
	return parts
}

// describe formats a history for people, in the order of the calls.
func describe(entries []porcupine.Operation) string {
	slices.SortFunc(entries, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines strings.Builder
	for _, e := range entries {
		until := strconv.FormatInt(e.Return, 10)
		if e.Return == never {
			until = "?"
		}
		fmt.Fprintf(&lines, "\t%d to %s, client %d: %s\n", e.Call, until, e.ClientId, words(e.Input.(input), e.Output.(output)))
	}
	return lines.String()
}

func words(in input, out output) string {
	switch in.kind {
	case getting:
		return fmt.Sprintf("get %d: %d", in.key, out.seen[in.key])
	case scanning:
		return fmt.Sprintf("scan: %d", out.seen)
	}
	var parts []string
	for _, c := range in.batch.conditions {
		parts = append(parts, [...]string{"", fmt.Sprintf("if %d=%d", c.key, c.value), fmt.Sprintf("if no %d", c.key), fmt.Sprintf("if any %d", c.key)}[c.kind])
	}
	for _, o := range in.batch.ops {
		parts = append(parts, [...]string{"", fmt.Sprintf("put %d=%d", o.key, o.value), fmt.Sprintf("delete %d", o.key), "delete all"}[o.kind])
	}
	return fmt.Sprintf("%s: %s", strings.Join(parts, ", "), [...]string{"done", "conflict", "unknown"}[out.answer])
}
