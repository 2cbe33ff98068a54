package export

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-go/weft/checkpoint"
)

// Every field of an event survives export and import, but for those that a replay does not need.
func TestExportedEvent(t *testing.T) {
	var full checkpoint.Event
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Seq" || name == "Was" {
			continue
		}
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(name)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i) + 1)
		case reflect.Slice:
			f.SetBytes([]byte{0xff, byte(i)})
		default:
			t.Fatalf("no value for %s", name)
		}
	}
	json1 := full
	json1.Codec, json1.Result = "", []byte(`{"a":"<1>"}`)
	broken := full
	broken.Codec, broken.Result = "", []byte(`{"a":`) // invalid JSON must survive too
	null := full
	null.Codec, null.Result = "", []byte(`null`)
	want := checkpoint.Checkpoint{Number: 7, Time: time.UnixMicro(1).UTC(), Events: []checkpoint.Event{full, json1, broken, null, {}}}

	line, err := json.Marshal(tell(want))
	if err != nil {
		t.Fatal(err)
	}
	var ch checkpointLine
	if err := json.Unmarshal(line, &ch); err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b []byte) bool {
		return string(a) == string(b) || json.Valid(a) && json.Valid(b) && jsonEqual(a, b)
	})
	if diff := cmp.Diff(want, ch.checkpoint(), same, cmpopts.IgnoreUnexported(checkpoint.Checkpoint{})); diff != "" {
		t.Errorf("out of an exported history (-want +got):\n%s\n%s", diff, line)
	}
}

func jsonEqual(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
