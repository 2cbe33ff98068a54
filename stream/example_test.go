package stream_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/stream"
)

var words = &stream.Stream[string]{Name: "words"}

// answers is an activity that writes the words of an answer as they come.
var answers = &activity.Activity[[]string, int]{Name: "answer", Run: func(ctx context.Context, all []string) (int, error) {
	w := words.Writer(ctx)
	for _, word := range all {
		if err := w.Write(word); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}}

// running returns an engine that executes workflows, and what stops it.
func running(workflows ...engine.Definition) (*engine.Engine, func()) {
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: workflows,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go eng.Run(ctx)
	return eng, func() { stop(); eng.Close() }
}

// A page shows the words of an answer. After a reload it goes on behind the last one that it has shown.
func ExampleStream_Read() {
	chat := &engine.Workflow[[]string, int]{Name: "chat", Func: func(run *engine.Run, all []string) (int, error) {
		return answers.Do(run, all)
	}}
	eng, stop := running(chat)
	defer stop()
	ctx := context.Background()
	if _, err := chat.Start(ctx, eng, "chat-7", []string{"It", "will", "rain."}); err != nil {
		log.Fatal(err)
	}
	last := int64(-1)
	for c, err := range words.Read(ctx, eng, "chat-7", last+1) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(c.Index, c.Data)
		if last = c.Index; last == 1 {
			break // the page is reloaded
		}
	}
	for c, err := range words.Read(ctx, eng, "chat-7", last+1) {
		fmt.Println(c.Index, c.Data, err)
	}
	// Output:
	// 0 It
	// 1 will
	// 2 rain. <nil>
}

// The words are complete, and the workflow goes on: whoever reads them comes to the end.
func ExampleStream_Close() {
	mailed := make(chan bool)
	chat := &engine.Workflow[[]string, int]{Name: "chat", Func: func(run *engine.Run, all []string) (int, error) {
		n, err := answers.Do(run, all)
		if err == nil {
			err = words.Close(run)
		}
		if err != nil {
			return 0, err
		}
		return engine.Step(run, "mail", func(context.Context) (int, error) {
			<-mailed
			return n, nil
		})
	}}
	eng, stop := running(chat)
	defer stop()
	ctx := context.Background()
	h, err := chat.Start(ctx, eng, "chat-7", []string{"It", "will", "rain."})
	if err != nil {
		log.Fatal(err)
	}
	for c, err := range words.Read(ctx, eng, "chat-7", 0) {
		fmt.Println(c.Data, err)
	}
	fmt.Println("complete")
	close(mailed)
	fmt.Println(h.Result(ctx))
	// Output:
	// It <nil>
	// will <nil>
	// rain. <nil>
	// complete
	// 3 <nil>
}
