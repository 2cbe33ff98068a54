package record_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/weft-go/weft/internal/record"
)

// A parcel contains structs in every way that a record can: directly, behind a pointer and in
// lists, also nested. A laterParcel is the same in a later release, in which each struct has
// one more field.
type parcel struct {
	ID   string `cbor:"1,keyasint"`
	To   stop   `cbor:"2,keyasint"`
	From *stop  `cbor:"3,keyasint,omitempty"`
	Via  []stop `cbor:"4,keyasint,omitempty"`
	Tags []byte `cbor:"5,keyasint,omitempty"`
}

type stop struct {
	Town  string   `cbor:"1,keyasint"`
	Scan  *scan    `cbor:"2,keyasint,omitempty"`
	Scans []*scan  `cbor:"3,keyasint,omitempty"`
	Notes []string `cbor:"4,keyasint,omitempty"`
}

type scan struct {
	At int64 `cbor:"1,keyasint"`
}

type laterParcel struct {
	ID    string      `cbor:"1,keyasint"`
	To    laterStop   `cbor:"2,keyasint"`
	From  *laterStop  `cbor:"3,keyasint,omitempty"`
	Via   []laterStop `cbor:"4,keyasint,omitempty"`
	Tags  []byte      `cbor:"5,keyasint,omitempty"`
	Later string      `cbor:"70,keyasint,omitempty"`
}

type laterStop struct {
	Town  string       `cbor:"1,keyasint"`
	Scan  *laterScan   `cbor:"2,keyasint,omitempty"`
	Scans []*laterScan `cbor:"3,keyasint,omitempty"`
	Notes []string     `cbor:"4,keyasint,omitempty"`
	Later []laterScan  `cbor:"71,keyasint,omitempty"`
}

type laterScan struct {
	At    int64             `cbor:"1,keyasint"`
	Later map[string]uint64 `cbor:"72,keyasint,omitempty"`
}

func theirStop(town string, n uint64) laterStop {
	at := func(i uint64) laterScan { return laterScan{int64(i), map[string]uint64{"weight": n + i}} }
	one, two := at(1), at(2)
	return laterStop{town, &one, []*laterScan{&one, &two, &one}, []string{"fragile"}, []laterScan{at(3)}}
}

// FMT-12: fields that a later release added to structs within a record survive a write by
// this release, byte for byte, if the struct is unchanged.
func TestUnknownFieldsOfStructsWithinSurvive(t *testing.T) {
	via := []laterStop{theirStop("Bern", 10), theirStop("Chur", 20), theirStop("Bern", 30), {Town: "Genf"}}
	from := theirStop("Ulm", 40)
	for name, c := range map[string]struct {
		this func(*parcel)      // what this release changes
		then func(*laterParcel) // the expected result in the later release
	}{
		"nothing":          {func(*parcel) {}, func(*laterParcel) {}},
		"a field is other": {func(p *parcel) { p.ID = "2" }, func(p *laterParcel) { p.ID = "2" }},
		"the first of a list goes": {
			func(p *parcel) { p.Via = p.Via[1:] },
			func(p *laterParcel) { p.Via = []laterStop{via[1], via[0], via[3]} }, // via[0] and via[2] have the same known fields
		},
		"one comes in front": {
			func(p *parcel) { p.Via = append([]stop{{Town: "Zug"}}, p.Via...) },
			func(p *laterParcel) { p.Via = append([]laterStop{{Town: "Zug"}}, p.Via...) },
		},
		"all go": {func(p *parcel) { p.Via = nil }, func(p *laterParcel) { p.Via = nil }},
		"one is replaced": {
			func(p *parcel) { p.From = &stop{Town: "Linz", Scan: &scan{1}} },
			func(p *laterParcel) { p.From = &laterStop{Town: "Linz", Scan: &laterScan{At: 1}} },
		},
		"one goes, and comes back": {
			func(p *parcel) { was := *p.From; p.From = nil; p.From = &was },
			func(*laterParcel) {},
		},
		"bytes that look like a struct": {
			func(p *parcel) { p.Tags = []byte{0xa1, 0x01, 0x02} },
			func(p *laterParcel) { p.Tags = []byte{0xa1, 0x01, 0x02} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := laterParcel{ID: "1", To: theirStop("Rom", 50), From: &from, Via: via, Later: "later"}
			stored := seal(t, &theirs, nil)
			var mine parcel
			unknown, err := record.Open(key, stored, 1, &mine)
			if err != nil {
				t.Fatal(err)
			}
			c.this(&mine)
			c.then(&theirs)
			for range 2 { // keep can be used for several writes
				if got, want := seal(t, &mine, unknown), seal(t, &theirs, nil); !bytes.Equal(got, want) {
					var back laterParcel
					_, err := record.Open(key, got, 1, &back)
					t.Errorf("written by this release:\n%+v (%v), want\n%+v", back, err, theirs)
				}
			}
		})
	}
}

// The unknown fields of a record survive when it is copied into a field of another.
func TestUnknownFieldsOfACopySurvive(t *testing.T) {
	var copied stop
	theirs := theirStop("Bern", 1)
	ofStop, err := record.Open(key, seal(t, &theirs, nil), 1, &copied)
	if err != nil {
		t.Fatal(err)
	}
	var mine parcel
	there := laterParcel{ID: "1", Via: []laterStop{theirStop("Chur", 2)}, Later: "later"}
	ofParcel, err := record.Open(key, seal(t, &there, nil), 1, &mine)
	if err != nil {
		t.Fatal(err)
	}
	for field, put := range map[uint64]func(){
		3: func() { mine.From, there.From = &copied, &theirs },
		4: func() { mine.Via, there.Via = append(mine.Via, copied), append(there.Via, theirs) },
	} {
		before, after := mine, there
		put()
		all, err := ofParcel.With(field, &copied, ofStop)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := seal(t, &mine, all), seal(t, &there, nil); !bytes.Equal(got, want) {
			t.Errorf("field %d: %x, want %x", field, got, want)
		}
		mine, there = before, after
	}
	if same, err := ofParcel.With(3, &copied, nil); err != nil || !reflect.DeepEqual(same, ofParcel) {
		t.Errorf("with nothing: %v, %v", same, err)
	}
}
