package engine

import (
	"bytes"
	"context"

	"github.com/weft-go/weft/internal/record"
)

// activeDeployment is the duty to look at skipped entries again when another deployment was
// activated.
type activeDeployment struct {
	incarnation *incarnation
	seen        []byte // the record that was last read
}

func (d *activeDeployment) look(ctx context.Context) error {
	l := d.incarnation
	if !l.eng.hasPinned() {
		return nil
	}
	a, err := l.eng.active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return err
	case bytes.Equal(a.raw, d.seen):
		return nil
	}
	d.seen = a.raw
	l.lookAgain()
	return err // reports a damaged record once
}

// bind has the claim c bind the run to the active deployment. It returns nil if this engine
// does not belong to that deployment.
func (l *incarnation) bind(ctx context.Context, c *claimable, entry []byte) (*claimable, error) {
	a, err := l.eng.active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return nil, err
	case !l.eng.isActive(a):
		l.leaveAlone(entry) // until another deployment is active
		return nil, nil
	}
	c.hold = c.hold.On(a.Deployment)
	c.also = append(c.also, a.unchanged())
	return c, nil
}
