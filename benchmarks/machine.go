package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// drivers are the modules whose version a figure depends on.
var drivers = []string{
	"modernc.org/sqlite", "go.etcd.io/bbolt", "github.com/cockroachdb/pebble/v2", "github.com/jackc/pgx/v5",
	"github.com/riverqueue/river", "go.temporal.io/server", "go.temporal.io/sdk",
}

// notes say what the figures were measured on, and how.
func (r *report) notes() []string {
	size := "full size"
	if r.plan.quick {
		size = "-quick"
	}
	notes := []string{
		fmt.Sprintf("%s, %d rounds, %s: median (minimum–maximum) of the rounds; a ratio is the median of the rounds' ratios.",
			time.Now().Format(time.DateOnly), r.plan.rounds, size),
		fmt.Sprintf("%s %s/%s, %d cores%s.", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), kernel()),
	}
	builds := r.plan.builds
	if info, ok := debug.ReadBuildInfo(); ok {
		builds = append(builds, info)
	}
	var versions []string
	for _, d := range drivers {
		for _, info := range builds {
			i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == d })
			if i < 0 {
				continue
			}
			if v := d + " " + info.Deps[i].Version; !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
		}
	}
	if s := r.plan.server; s != nil {
		versions = append(versions, "PostgreSQL "+s.version)
	}
	if len(versions) > 0 {
		notes = append(notes, strings.Join(versions, ", ")+".")
	}
	return notes
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return ", Linux " + string(bytes.TrimSpace(release))
}
