package main

import (
	"reflect"
	"time"

	"github.com/weft-go/weft"
	remote "github.com/weft-go/weft/client"
)

// remoteBulks are the verbs about bulk operations of a control plane.
type remoteBulks struct {
	Start bulksStart `cmd:"" help:"Do one operation to every run that the flags select."`
	List  bulksList  `cmd:"" help:"List bulks, in the order of their ids backwards: those that go on, and those that ended lately."`
	Get   bulksGet   `cmd:"" help:"Show a bulk, with the runs that it has refused."`
	Stop  bulksStop  `cmd:"" help:"End a bulk. What it has done stays."`
}

// oneBulk is what a verb needs to know that is about a bulk.
type oneBulk struct {
	plane
	ID string `arg:"" help:"The id of the bulk."`
}

type bulksStart struct {
	oneBulk
	Verb string `arg:"" enum:"cancel,terminate,signal,resume,reset,purge" help:"What is done to each: cancel, terminate, signal, resume, reset or purge."`
	selecting
	Since string `placeholder:"TIME" help:"Only runs of this time or later: a time such as 2026-07-29T10:00:00Z, or how long ago, such as 2h."`
	Until string `placeholder:"TIME" help:"Only runs before this time."`
	doing
	Reason string `required:"" placeholder:"TEXT" help:"Why. The histories of the runs and the audit trail keep it."`
}

func (x *bulksStart) Run(e *env) error {
	f, err := x.selects()
	if err != nil {
		return err
	}
	now := time.Now()
	if f.After, err = timeOf("since", x.Since, now); err != nil {
		return err
	}
	if f.Before, err = timeOf("until", x.Until, now); err != nil {
		return err
	}
	if len(f.Labels) == 0 {
		f.Labels = nil
	}
	if reflect.DeepEqual(f, weft.Filter{}) { // the control plane would not say why it refuses this
		return misuse("this selects everything: give --until 0s if that is meant")
	}
	b, err := x.bulk(e, x.Verb, f)
	if err != nil {
		return err
	}
	return e.remotely(x.plane, func(c *remote.Client) error {
		err := c.StartBulk(e, x.ID, b, weft.Actor{Reason: x.Reason})
		if err = e.sameBulk(err, x.Since, x.Until, b.Filter, func() (weft.BulkInfo, error) { return c.Bulk(e, x.ID) }); err != nil {
			return err
		}
		return e.done(x.ID, "is started")
	})
}

type bulksList struct {
	plane
	paged
}

func (x *bulksList) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		return tabled(e, x.paged, bulkColumns, func(r weft.PageRequest) (weft.Page[bulkJSON], error) {
			p, err := c.Bulks(e, r)
			all := weft.Page[bulkJSON]{Next: p.Next, HasMore: p.HasMore}
			for _, i := range p.Data {
				all.Data = append(all.Data, remoteBulkOf(i))
			}
			return all, err
		}, bulkJSON.row)
	})
}

func remoteBulkOf(i weft.BulkInfo) bulkJSON {
	j := bulkOf(i)
	j.remote = true
	return j
}

type bulksGet struct{ oneBulk }

func (x *bulksGet) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		i, err := c.Bulk(e, x.ID)
		if err != nil {
			return err
		}
		if e.JSON {
			return printJSON(e.out, remoteBulkOf(i))
		}
		remoteBulkOf(i).print(e)
		return nil
	})
}

type bulksStop struct {
	oneBulk
	sure
}

func (x *bulksStop) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		if err := c.StopBulk(e, x.ID, x.by()); err != nil {
			return err
		}
		return e.done(x.ID, "is stopped")
	})
}
