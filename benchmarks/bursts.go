package main

import (
	"context"
	"errors"
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

// keeps is how many workflows an engine keeps in memory by default.
const keeps = 1000

func burst(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, crowd)
	if err != nil {
		return err
	}
	defer sys.Close()
	below, above := keeps*9/10, 5*keeps
	rates := map[int]float64{}
	for i, callers := range []int{below, above, above, below} { // in this order: the store grows
		n, took, err := load(ctx, sys, counted(fmt.Sprintf("%d-of-%d", i, callers)), callers, c.Load/2, Shape{Steps: 1})
		if err != nil {
			return err
		}
		rates[callers] += float64(n) / took.Seconds() / 2
	}
	for _, callers := range []int{below, above} {
		c.report(fmt.Sprintf("workflows/s, %d callers", callers), rates[callers])
	}
	c.report(fmt.Sprintf("%d callers to %d", above, below), rates[above]/rates[below])
	return nil
}

// resultSizes looks at files while no engine has them open: a log of changes has been copied back by then.
func resultSizes(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, crowd)
	if err != nil {
		return err
	}
	if err := sys.Close(); err != nil {
		return err
	}
	for _, size := range []int{100, 800, 1000, 4 << 10, 16 << 10, mostLetters} {
		before, err := bytesIn(c.site.Dir)
		if err != nil {
			return err
		}
		if sys, err = c.open(ctx); err != nil {
			return err
		}
		n, took, err := load(ctx, sys, counted(fmt.Sprint("of-", size)), crowd, c.Load/2, Shape{Steps: stepsEach, Bytes: size})
		if err = errors.Join(err, sys.Close()); err != nil {
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
