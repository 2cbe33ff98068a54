package cron_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // not that of the machine

	"github.com/weft-go/weft/internal/cron"
)

var update = flag.Bool("update", false, "print the table of testdata/times.txt as it is now")

// SCH-2, SCH-16: times that were worked out once and looked at by people. An update of the library
// must not change them. A block of the table is a zone, a start, an expression, and what follows.
func TestGoldenTimes(t *testing.T) {
	file, err := os.Open("testdata/times.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var c *cron.Calendar
	var m cron.Mark
	var about string
	n := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if fields := strings.Split(line, " | "); len(fields) == 3 {
			about = line
			from, err := time.Parse(time.RFC3339, fields[1])
			if err != nil {
				t.Fatal(err)
			}
			if c, err = (cron.Times{Zone: fields[0], Cron: []string{fields[2]}}).Calendar(); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			m = c.Mark(from.Add(-1))
			if *update {
				fmt.Printf("\n%s\n", line)
			}
			continue
		}
		next, ok := c.Next(m)
		if got := show(t, next, about); !ok || got != line {
			t.Errorf("%s: got %q, want %q", about, got, line)
		}
		if *update {
			fmt.Println(show(t, next, about))
		}
		m = c.Mark(next)
		n++
	}
	if err := lines.Err(); err != nil || n < 60 {
		t.Errorf("%d times were compared: %v", n, err)
	}
}

// show returns a time in UTC and what clocks in the zone of a block show.
func show(t *testing.T, at time.Time, block string) string {
	zone, _, _ := strings.Cut(block, " | ")
	in, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return at.Format("2006-01-02T15:04:05Z") + " " + at.In(in).Format("Mon 15:04 -0700")
}
