package main

import (
	"strings"
	"testing"

	"github.com/weft-go/weft"
)

// The workflow that has the token which a hook was refused is no child.
func TestTheOwnerOfATokenIsNoChild(t *testing.T) {
	v := newView()
	v.operations = []*operation{{operationJSON: operationJSON{Operation: "1", Of: "hook", Child: "owner"}}}
	if err := v.findChildren(nil, nil); err != nil || len(v.children) > 0 {
		t.Errorf("got the children %+v, %v", v.children, err)
	}
}

// An operator is told of each way out.
func TestAdvice(t *testing.T) {
	for reason, ways := range map[weft.Reason][]string{
		weft.ReasonDamaged:       {"from a backup", "weft terminate order-42"},
		weft.ReasonUncompensated: {"weft resolve order-42 3.undo", "weft resume order-42"},
	} {
		got := advice("order-42", weft.Attention{Reason: reason, Operation: "3.undo"})
		for _, way := range ways {
			if !strings.Contains(got, way) {
				t.Errorf("%s: the advice %q does not say %q", reason, got, way)
			}
		}
	}
}
