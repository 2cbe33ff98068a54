package worker

import (
	"bytes"
	"context"

	"github.com/weft-go/weft/internal/record"
)

// activeDeployment is the duty to look at skipped entries again when another deployment was activated.
type activeDeployment struct {
	incarnation *Incarnation
	seen        []byte // the record that was last read
}

func (d *activeDeployment) look(ctx context.Context) error {
	l := d.incarnation
	if !l.Worker.HasPinned() {
		return nil
	}
	a, err := l.Worker.Active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return err
	case bytes.Equal(a.Raw, d.seen):
		return nil
	}
	d.seen = a.Raw
	l.LookAgain()
	return err // reports a damaged record once
}

// bind has the claim c bind the run to the active deployment. It returns nil if this engine
// does not belong to that deployment.
func (l *Incarnation) bind(ctx context.Context, c *Claimable, entry []byte) (*Claimable, error) {
	a, err := l.Worker.Active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return nil, err
	case !l.Worker.IsActive(a):
		l.left.Add(entry, l.Worker.PollInterval) // until another deployment is active
		return nil, nil
	}
	c.Hold = c.Hold.On(a.Deployment)
	c.also = append(c.also, a.Unchanged())
	return c, nil
}
