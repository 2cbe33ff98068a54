// Command benchmarks measures Weft on each of its stores, other engines, and
// what the stores can do at most: all of it in one run and in turn, so that what
// else the machine does hits everybody. ../docs/performance.md explains what it
// prints.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		stop()
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "child" {
		return runChild(ctx, args[1])
	}
	var p plan
	flags := flag.NewFlagSet("benchmarks", flag.ExitOnError)
	flags.BoolVar(&p.quick, "quick", false, "smaller workloads, for a look or a machine of a CI, and only\npeers that this program has in it, unless -only names others")
	flags.IntVar(&p.rounds, "rounds", 0, "how often everything is measured (default 5, with -quick 2)")
	only := flags.String("only", "", "peer/store/workload,...: measure these, and the raw limits of their stores.\nEach part is a pattern; parts left out are all: weft/sqlite, */postgres, */*/w1*")
	flags.StringVar(&p.dir, "dir", "", "where the stores are put (default: the directory for temporary files)")
	flags.StringVar(&p.url, "pg", "", "URL of a PostgreSQL server on which databases may be created (default: a private one)")
	lines := flags.String("json", "", "file to which every value is written, one JSON object a line")
	flags.StringVar(&p.profiles, "profiles", "", "directory for CPU and allocation profiles of every process, which cost a little")
	markdown := flags.Bool("markdown", false, "print the table as Markdown")
	list := flags.Bool("list", false, "list what there is to measure")
	flags.Parse(args)
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *only != "" {
		p.only = strings.Split(*only, ",")
	}
	rounds := 5
	p.size = full
	if p.quick {
		rounds, p.size = 2, quick
	}
	if p.rounds <= 0 {
		p.rounds = rounds
	}
	if *list {
		for _, t := range p.tasks() {
			fmt.Println(t)
		}
		return nil
	}
	r := newReport(&p)
	if *lines != "" {
		f, err := os.Create(*lines)
		if err != nil {
			return err
		}
		defer f.Close()
		r.lines = json.NewEncoder(f)
	}
	began := time.Now()
	if err := p.run(ctx, r.add); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "measured in %v\n", time.Since(began).Round(time.Second))
	if *markdown {
		return r.writeMarkdown(os.Stdout)
	}
	return r.writeText(os.Stdout)
}
