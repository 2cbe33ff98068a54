package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
)

// W16 is what happens when more workflows are started than an engine keeps in memory. W17 is what larger results cost.
var (
	bursts = &Workload{Name: "w16", Title: "W16: many callers, an engine that keeps 1,000 workflows in memory", Parts: only(burst)}
	sizes  = &Workload{Name: "w17", Title: "W17: W1 c200 with results of other sizes", Parts: only(resultSizes)}
)

const room = 1000 // workflows that the engine of W16 keeps in memory

func burst(ctx context.Context, c *Child) error {
	c.site.Room = room
	sys, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := c.warm(ctx, sys, crowd); err != nil {
		return err
	}
	var rates []float64
	for _, callers := range []int{room * 9 / 10, 5 * room} {
		n, took, err := load(ctx, sys, counted(fmt.Sprint("of-", callers)), callers, c.Load, Shape{Steps: 1})
		if err != nil {
			return err
		}
		rate := float64(n) / took.Seconds()
		c.report(fmt.Sprintf("workflows/s, %d callers", callers), rate)
		rates = append(rates, rate)
	}
	c.report("of the rate below the bound", rates[1]/rates[0])
	return nil
}

func resultSizes(ctx context.Context, c *Child) error {
	sys, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := c.warm(ctx, sys, crowd); err != nil {
		return err
	}
	for _, size := range []int{100, 800, 1000, 4 << 10, 16 << 10, mostLetters} {
		before, err := bytesIn(c.site.Dir)
		if err != nil {
			return err
		}
		n, took, err := load(ctx, sys, counted(fmt.Sprint("of-", size)), crowd, c.Load/2, Shape{Steps: stepsEach, Bytes: size})
		if err != nil {
			return err
		}
		c.report(fmt.Sprintf("steps/s, %d bytes", size), float64(n*stepsEach)/took.Seconds())
		after, err := bytesIn(c.site.Dir)
		if err != nil {
			return err
		}
		if c.site.Store == "sqlite" { // the files of others grow in large steps, or are no files
			c.report(fmt.Sprintf("bytes stored for each, %d bytes", size), float64(after-before)/float64(n*stepsEach*int64(size)))
		}
	}
	return nil
}

// bytesIn returns the size of the files in a directory.
func bytesIn(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// letters returns part of a random text, which no store can make shorter by much.
func letters(n int) string {
	from := rand.N(len(text) - n + 1)
	return text[from : from+n]
}

const mostLetters = 64 << 10

var text = func() string {
	b := make([]byte, 2*mostLetters)
	for i := range b {
		b[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[rand.N(62)]
	}
	return string(b)
}()
