package payload

import (
	"context"
	"encoding/json"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft"
)

type (
	Plain struct {
		A string
		B []int
		C map[string]*Plain
		D time.Time
		E *big.Int
		F netip.Addr
		G any
		H json.RawMessage
		I func() `json:"-"`
		j int    `json:"-"`
		_ struct{}
	}
	secret   struct{ Name, password string }
	embeds   struct{ Plain }
	embedsIt struct{ *secret }
	keyed    struct{ M map[[2]int]string }
	locked   struct{ Mu sync.Mutex }
	deep     struct{ List []map[string]*secret }
	reader   struct{ From interface{ Read() } }
	oneWay   struct{ N int }

	Base struct {
		ID   string
		Gone struct{}
	}
	other  struct{ ID string }
	byName struct {
		A string `json:"B"`
		B string
	}
	hides struct {
		Base
		ID string
	}
	hidesByTag struct {
		*Base
		Number int `json:"ID"`
	}
	twice struct {
		Base
		other
	}
	inDepth struct{ List []struct{ twice } }
	Around  struct {
		*Within
		Name string
	}
	Within struct {
		*Around
		Size int
	}
	distinct struct {
		Base  `json:"base"`
		Other other
		Id    string
		ID    string
		Gone  struct{}
		Left  string `json:"-"`
		//lint:ignore SA5008 so a field gets the name "-"
		Dash  string `json:"-,"`
		Minus string `json:"minus"`
	}
	hidesNothing struct {
		Base `json:"-"`
		ID   string
	}
)

func (o oneWay) MarshalJSON() ([]byte, error)  { return json.Marshal(map[string]int{"n": o.N}) }
func (o *oneWay) UnmarshalJSON(b []byte) error { return nil }

func TestLossless(t *testing.T) {
	text := reflect.TypeFor[string]()
	alike := reflect.StructOf([]reflect.StructField{ // go vet would find it
		{Name: "ID", Type: text, Tag: `json:"id"`},
		{Name: "Ref", Type: text, Tag: `json:"id,omitempty"`},
	})
	_ = Plain{}.j
	_ = secret{}.password
	for _, c := range []struct {
		v    any
		want string // "": nothing is lost
	}{
		{Plain{}, ""},
		{embeds{}, ""},
		{"", ""},
		{struct{}{}, ""},
		{[]byte(nil), ""},
		{oneWay{}, ""}, // its type does not show it
		{secret{}, "password is not exported"},
		{&secret{}, "password is not exported"},
		{embedsIt{}, "secret is not exported"},
		{deep{}, "List[][].password is not exported"},
		{locked{}, "Mu._ is not exported|Mu.mu is not exported|Mu.state is not exported"},
		{keyed{}, "M is a map with keys of type [2]int"},
		{reader{}, "From is an interface"},
		{make(chan int), "chan int is a chan int, which JSON cannot encode"},
		{url.URL{}, "User.username is not exported"},
		{reflect.Zero(alike).Interface(), "ID has the same name in JSON as Ref, \"id\", so JSON leaves it out"},
		{byName{}, "B has the same name in JSON as A, \"B\", so JSON leaves it out"},
		{hides{}, "Base.ID has the same name in JSON as ID"},
		{hidesByTag{}, "Base.ID has the same name in JSON as Number"},
		{twice{}, "Base.ID has the same name in JSON as other.ID"},
		{inDepth{}, "List[].twice.Base.ID has the same name in JSON as List[].twice.other.ID"},
		{distinct{}, ""},
		{hidesNothing{}, ""},
		{Around{}, ""},
	} {
		for range 2 { // the second is cached
			err := Lossless(reflect.TypeOf(c.v))
			found := c.want == "" && err == nil
			for _, words := range strings.Split(c.want, "|") {
				found = found || c.want != "" && err != nil && strings.HasPrefix(err.Error(), words)
			}
			if !found {
				t.Errorf("%T: %v, want %q", c.v, err, c.want)
			}
		}
	}
}

func TestReturns(t *testing.T) {
	c := &Codecs{Own: weft.JSON, ByName: map[string]weft.Codec{}}
	for _, x := range []struct {
		v    any
		want string
	}{
		{nil, ""},
		{Plain{A: "a", B: []int{1}, D: time.Unix(1, 2), E: big.NewInt(7), G: 3.5, H: json.RawMessage(`{"x": 1}`)}, ""},
		{map[string]any{"n": 1}, ""},
		{json.RawMessage(` [1, 2] `), ""},
		{oneWay{3}, `a payload.oneWay is not decoded as it was: encoded it is {"n":3}, and decoded and encoded again {"n":0}`},
		{secret{"a", "b"}, "password is not exported"},
	} {
		p, err := c.Encode(context.Background(), x.v)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Returns(context.Background(), x.v, p)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%T: %v, want %q", x.v, err, x.want)
		}
	}
}
