package main

import "testing"

// The workflow that has the token which a hook was refused is no child.
func TestTheOwnerOfATokenIsNoChild(t *testing.T) {
	v := newView()
	v.operations = []*operation{{operationJSON: operationJSON{Operation: "1", Of: "hook", Child: "owner"}}}
	if err := v.findChildren(nil, nil); err != nil || len(v.children) > 0 {
		t.Errorf("got the children %+v, %v", v.children, err)
	}
}
