package intake

import (
	"slices"
	"testing"

	"github.com/weft-go/weft/internal/acceptance"
)

// Two resumes of one token that have read different hooks are not accepted in one commit. Others are.
func TestTogether(t *testing.T) {
	sends := func(resumes ...*acceptance.Resume) (ss []*sending) {
		for _, r := range resumes {
			ss = append(ss, &sending{in: &acceptance.Incoming{Resume: r}})
		}
		return ss
	}
	former := &acceptance.Resume{TokenHash: "a", Address: []byte("hook 1")}
	present := &acceptance.Resume{TokenHash: "a", Address: []byte("hook 2")}
	other := &acceptance.Resume{TokenHash: "b", Address: []byte("hook 3")}
	batch := sends(nil, former, other, present, former, nil)
	now, later := together(slices.Clone(batch))
	if want := slices.Concat(batch[:3], batch[4:]); !slices.Equal(now, want) {
		t.Errorf("together: %v, want %v", now, want)
	}
	if !slices.Equal(later, batch[3:4]) || !batch[3].look {
		t.Errorf("later: %v, want %v, to be looked for", later, batch[3])
	}
}
