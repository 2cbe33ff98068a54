package w10

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
)

func handled(run *engine.Run) error {
	if err := run.Sleep(time.Second); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

func returned(run *engine.Run) (int, error) { return charge.Do(run, 1) }

func onlyError(run *engine.Run) error {
	_, err := charge.Do(run, 1)
	return err
}

func joined(run *engine.Run, err error) error {
	_, undone := charge.Do(run.WithoutCancel(), 1)
	return errors.Join(err, undone)
}

func logged(run *engine.Run) {
	if err := run.Sleep(time.Second); err != nil {
		run.Logger().Warn("not slept", "error", err)
	}
}

func waitedLater(run *engine.Run) (int, error) {
	f := charge.Go(run, 1)
	if err := run.Sleep(time.Second); err != nil {
		return 0, err
	}
	return f.Get(run)
}

func passed(run *engine.Run) ([]int, error) {
	return engine.All(run, charge.Go(run, 1), charge.Go(run, 2))
}

// These begin nothing.
func derives(run *engine.Run) {
	run.Cancelled()
	_, cancel := run.WithCancel()
	cancel()
	run.WithoutCancel()
}

// An error of something else.
func others(run *engine.Run) string {
	var b strings.Builder
	fmt.Fprint(&b, "a")
	b.WriteString("b")
	return b.String()
}

// It gets a Run and begins nothing.
func describes(run *engine.Run) error { return errors.New(run.ID()) }

func describesOnly(run *engine.Run) { _ = describes(run) }

func inStep(run *engine.Run) (bool, error) {
	return engine.Step(run, "s", func(ctx context.Context) (bool, error) {
		_ = ctx.Err()
		return true, nil
	})
}

// It returns no error.
func notifies(run *engine.Run) int {
	if _, err := charge.Do(run, 1); err != nil {
		return 0
	}
	return 1
}

func notified(run *engine.Run) { notifies(run) }

func firstResult(run *engine.Run) error {
	_, ok, err := paid.ReceiveWithin(run, 1)
	if !ok {
		return err
	}
	return err
}

func client(eng *engine.Engine) {
	_, _ = child.Start(context.Background(), eng, "a", 1)
}
