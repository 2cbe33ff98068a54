package runs

import "testing"

// What a repetition would do twice is not to be repeated if nobody knows whether it was done.
func TestWhatIsNotRepeated(t *testing.T) {
	id := "an id"
	for _, c := range []struct {
		params interface{ InsteadOfAgain() string }
		twice  bool
	}{
		{&sendParams{}, true},
		{&sendParams{SignalID: &id}, false},
		{&updateParams{}, true},
		{&updateParams{UpdateID: &id}, false},
		{&hookParams{}, true},
		{&hookParams{ResumeID: &id}, false},
		{&resetParams{}, true},
	} {
		if got := c.params.InsteadOfAgain(); (got != "") != c.twice {
			t.Errorf("%+v: %q", c.params, got)
		}
	}
}
