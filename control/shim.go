package control

import (
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
)

type existsError struct {
	Status checkpoint.Status
	Same   bool
	error
}

func startOn(r *engine.StartRequest, t target) {
	r.Options.Queue = t.queue
}

func fresh(r *engine.StartRequest) {}

func filterDeployment(f *engine.Filter, id string) {}

func (k *principal) restrict(f *engine.Filter) {}
