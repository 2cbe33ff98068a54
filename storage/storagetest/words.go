package storagetest

import (
	"fmt"
	"strings"

	"github.com/weft-go/weft/storage"
)

// words describes b for messages.
func words(b storage.Batch) string {
	var parts []string
	for i, c := range b.If {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("%d more conditions", len(b.If)-i))
			break
		}
		switch k := short(string(c.Key)); c.Kind {
		case storage.IsEqual:
			parts = append(parts, fmt.Sprintf("if %s equals %s", k, short(string(c.Value))))
		case storage.IsAbsent:
			parts = append(parts, "if "+k+" is absent")
		case storage.IsPresent:
			parts = append(parts, "if "+k+" is present")
		default:
			parts = append(parts, fmt.Sprintf("if %s is of kind %d", k, c.Kind))
		}
	}
	for i, o := range b.Ops {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("%d more operations", len(b.Ops)-i))
			break
		}
		switch k := short(string(o.Key)); o.Kind {
		case storage.PutOp:
			parts = append(parts, fmt.Sprintf("put %s = %s", k, short(string(o.Value))))
		case storage.DeleteOp:
			parts = append(parts, "delete "+k)
		case storage.DeleteRangeOp:
			parts = append(parts, "delete "+rangeWords(o.Range))
		default:
			parts = append(parts, fmt.Sprintf("operation of kind %d on %s", o.Kind, k))
		}
	}
	if len(parts) == 0 {
		return "empty batch"
	}
	return strings.Join(parts, ", ")
}

func rangeWords(r storage.Range) string {
	start, end := "first", "last"
	if r.Start != nil {
		start = short(string(r.Start))
	}
	if r.End != nil {
		end = "before " + short(string(r.End))
	}
	s := start + " to " + end
	if r.Limit != 0 {
		s += fmt.Sprintf(", Limit %d", r.Limit)
	}
	if r.Reverse {
		s += ", reversed"
	}
	return s
}

// short quotes s, or the first bytes of a long s.
func short(s string) string {
	const most = 48
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
}

func at(entries []string, i int) string {
	if i < len(entries) {
		return short(entries[i])
	}
	return "no entry"
}
