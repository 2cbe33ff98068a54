package schedule_test

import (
	"bytes"
	"testing"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/schedule"
)

// The bytes of the record of a schedule.
func TestGoldenRecordsOfSchedules(t *testing.T) {
	const noon = 1767355200000000
	of := func(r schedule.Record) golden.Record {
		return golden.Record{Key: keys.Schedule("report"), Version: schedule.Version, Value: &r, Empty: func() any { return new(schedule.Record) }}
	}
	put := schedule.Record{
		Workflow: "nightly", Input: []byte(`{"to":"ann"}`), Digest: bytes.Repeat([]byte{0xd1}, 32),
		Every: 3600000000, Cursor: noon, Wall: noon, Due: []byte("due:1767358800000000:sch:report"),
		Token: bytes.Repeat([]byte{7}, 16), By: "ann", Why: "monthly", At: noon,
	}
	full := put
	full.Codec, full.Canonical, full.Queue, full.Deployment = "cbor", bytes.Repeat([]byte{0xd2}, 32), "q", "blue"
	full.Labels = map[string]string{"team": "blue"}
	full.Every, full.Cron, full.Zone = 0, []string{"30 2 * * *"}, "Europe/Berlin"
	full.From, full.Until, full.Within, full.Jitter = noon, noon+1, 60000000, 1000000
	full.Overlap, full.Missed = weft.OverlapWait, weft.MissedAll
	full.Last = &schedule.Started{ID: "report@2026-01-02T12:00:00Z", Generation: "01JGZ3Q8X0000000000000000A", Nominal: noon, At: noon + 2}
	full.Triggered = []schedule.Trigger{{ID: "report@01JGZ3Q8X0000000000000000B", By: "ben", Why: "now", At: noon + 3}}
	full.Pause = &schedule.Pause{By: "ann", Why: "holiday", At: noon + 4}
	full.Starts, full.Skips, full.Misses, full.Problem, full.Since = 7, 2, 3, "no deployment is active", noon+5
	interval := put
	interval.Offset = 1000000
	golden.Check(t, "testdata/v1", map[string]golden.Record{"put": of(put), "full": of(full), "offset": of(interval)})
}
