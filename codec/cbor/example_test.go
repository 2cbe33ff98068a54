package cbor_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"time"

	"github.com/weft-go/weft/codec/cbor"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// A Photo has bytes and a time.
type Photo struct {
	Taken time.Time `json:"taken"`
	JPEG  []byte    `json:"jpeg"`
}

// An engine that stores payloads in CBOR. It still reads what was stored as JSON.
func Example() {
	develop := &engine.Workflow[Photo, int]{Name: "develop", Func: func(_ *engine.Run, p Photo) (int, error) { return len(p.JPEG), nil }}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{develop},
		Codec:     cbor.Codec,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := develop.Start(ctx, eng, "photo-1", Photo{time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), []byte{0xff, 0xd8}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	stored, err := eng.Payloads(ctx, "photo-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored.Input.Codec, len(stored.Input.Data))
	// Output:
	// 2 <nil>
	// cbor 37
}
