package control_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/world"
)

const newSecret = "the-new-secret-of-the-shop"

func withKeys(keys ...control.Key) func(*control.Config) {
	return func(c *control.Config) { c.Keys = append(homeKeys(), keys...) }
}

// HTTP-8, HTTP-9, HTTP-105: New writes Config.Keys, and nothing if they are there as they should be.
func TestSeeding(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		shop := control.Key{ID: "shop", Secret: "the-first-secret-of-the-shop", Scopes: []string{"runs:read", "trigger:write"}}
		serve(t, s, withKeys(shop)).do("GET", "/v1/runs", shop.Secret, nil).is(200)

		before := dump(t, s)
		shop.Scopes = []string{"trigger:write", "runs:read"} // the same
		x := planeOn(t, s, withKeys(shop))
		if after := dump(t, s); keysDiffer(before, after) {
			t.Errorf("equal keys were written again: %v, then %v", before, after)
		}
		if strings.Contains(x.log.String(), "Config.Keys") {
			t.Errorf("equal keys were logged: %s", x.log)
		}

		shop.Scopes = []string{"runs:read"}
		x = serve(t, s, withKeys(shop))
		x.do("GET", "/v1/runs", shop.Secret, nil).is(200)
		x.do("POST", "/v1/runs", shop.Secret, nil).fails(403, "missing_scope")
		if !strings.Contains(x.log.String(), "a key of Config.Keys has replaced what was stored") {
			t.Errorf("other scopes were not logged: %s", x.log)
		}

		old := shop.Secret
		shop.Secret = newSecret
		x = serve(t, s, withKeys(shop))
		x.do("GET", "/v1/runs", newSecret, nil).is(200)
		x.do("GET", "/v1/runs", old, nil).is(200) // for an hour: another process may not know the new one yet
		if !strings.Contains(x.log.String(), "formerSecretAcceptedFor=1h0m0s") {
			t.Errorf("it was not logged for how long the former secret is accepted: %s", x.log)
		}

		shop.Secret = old // a process that was not told of the new one
		x = serve(t, s, withKeys(shop))
		if !strings.Contains(x.log.String(), "was rotated out: it stays out") {
			t.Errorf("a former secret was not logged: %s", x.log)
		}
		if got := x.do("POST", "/v1/keys/shop/rotate", adminSecret, map[string]any{"graceSeconds": 0}).is(200); got.object()["keyId"] != "shop" {
			t.Errorf("got %s", got.body)
		}
		x.do("GET", "/v1/runs", newSecret, nil).is(401)

		serve(t, s).do("GET", "/v1/keys", adminSecret, nil).is(200) // what leaves Config stays
		x.do("DELETE", "/v1/keys/shop", adminSecret, nil).is(204)
		shop.Secret = newSecret
		x = serve(t, s, withKeys(shop))
		x.do("GET", "/v1/runs", newSecret, nil).is(401)
	})
}

// keysDiffer reports whether records of keys differ.
func keysDiffer(a, b map[string]string) bool {
	for _, all := range []map[string]string{a, b} {
		for k := range all {
			if strings.HasPrefix(k, "ctl:key") && a[k] != b[k] {
				return true
			}
		}
	}
	return false
}

// HTTP-7, HTTP-9: a key that was revoked stays out, also if Config still has it.
func TestARevokedSeedStaysOut(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s)
	x.do("DELETE", "/v1/keys/reader", adminSecret, nil).is(204)
	x = serve(t, s)
	x.do("GET", "/v1/runs", readerSecret, nil).fails(401, "unauthorized").says("Invalid API key")
	if !strings.Contains(x.log.String(), "a key of Config.Keys was revoked: it stays out") {
		t.Errorf("it was not logged: %s", x.log)
	}
	x.do("DELETE", "/v1/keys/reader", adminSecret, nil).is(204) // again
}

// HTTP-7: after a revocation and after the expiry the next request to any process is refused.
func TestKeysEnd(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		x, y := serve(t, s), serve(t, s)
		made := x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}}).is(201).object()
		secret := made["secret"].(string)
		if len(secret) != len("weft_sk_")+43 || !strings.HasPrefix(secret, "weft_sk_") {
			t.Errorf("got the secret %q", secret)
		}
		x.do("GET", "/v1/runs", secret, nil).is(200)
		y.do("GET", "/v1/runs", secret, nil).is(200)

		rotated := x.do("POST", "/v1/keys/shop/rotate", adminSecret, nil).is(200).object()
		if rotated["secret"] == secret || rotated["keyId"] != "shop" || rotated["formerValidUntil"] == nil {
			t.Errorf("rotate: got %v", rotated)
		}
		for _, z := range []*site{x, y} { // the former is good for an hour
			z.do("GET", "/v1/runs", secret, nil).is(200)
			z.do("GET", "/v1/runs", rotated["secret"].(string), nil).is(200)
		}
		again := x.do("POST", "/v1/keys/shop/rotate", adminSecret, map[string]any{"graceSeconds": 0}).is(200).object()
		y.do("GET", "/v1/runs", rotated["secret"].(string), nil).is(401)
		y.do("GET", "/v1/runs", secret, nil).is(401) // nor one that was given a longer grace before
		y.do("GET", "/v1/runs", again["secret"].(string), nil).is(200)

		x.do("DELETE", "/v1/keys/shop", adminSecret, nil).is(204)
		for _, z := range []*site{x, y} {
			z.do("GET", "/v1/runs", secret, nil).fails(401, "unauthorized").says("Invalid API key")
			z.do("GET", "/v1/runs", again["secret"].(string), nil).is(401)
		}
		x.do("POST", "/v1/keys/shop/rotate", adminSecret, nil).fails(404, "not_found")
		x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}}).fails(409, "key_exists")
	})
}

// A narrow store takes small batches alone, as one on etcd does.
type narrow struct{ storage.Storage }

func (s narrow) Unwrap() storage.Storage { return s.Storage }

func (s narrow) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.MaxBatch = storage.Size{Ops: 127, Bytes: 32 << 10}
	return c
}

func (s narrow) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.Capabilities().MaxBatch); err != nil {
		return err
	}
	return s.Storage.Commit(ctx, b)
}

// recordOf is where the record of a secret is.
func recordOf(secret string) []byte {
	hash := sha256.Sum256([]byte(secret))
	return keys.ControlKey(hex.EncodeToString(hash[:]))
}

// HTTP-7: a key is revoked in one change, however often it was rotated: ten former secrets are valid at most. An earlier
// release left any number of them valid, and the record of the key as large as a batch takes. They end with the next change of the key.
func TestManyFormerSecrets(t *testing.T) {
	for name, change := range map[string]func(x *site, shop control.Key){
		"it is revoked": func(x *site, _ control.Key) { x.do("DELETE", "/v1/keys/shop", adminSecret, nil).is(204) },
		"it is rotated": func(x *site, _ control.Key) { x.do("POST", "/v1/keys/shop/rotate", adminSecret, nil).is(200) },
		"Config.Keys has other scopes": func(x *site, shop control.Key) {
			shop.Scopes = []string{"deploy:read"}
			planeOn(x.t, x.store, withKeys(shop))
		},
		"Config.Keys has another secret": func(x *site, shop control.Key) {
			shop.Secret = newSecret
			planeOn(x.t, x.store, withKeys(shop))
		},
	} {
		t.Run(name, func(t *testing.T) { virtual(t, func(t *testing.T) { formerSecrets(t, change) }) })
	}
}

func formerSecrets(t *testing.T, change func(x *site, shop control.Key)) {
	s := narrow{new(memory.Store)}
	x := planeOn(t, s)
	secrets := []string{x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}}).is(201).object()["secret"].(string)}
	valid := map[string]string{} // the records of secrets, as they were before they were rotated out for good
	for range 80 {
		for k, v := range dump(t, s) {
			if _, ok := valid[k]; !ok && strings.HasPrefix(k, "ctl:key:") {
				valid[k] = v
			}
		}
		secrets = append(secrets, x.do("POST", "/v1/keys/shop/rotate", adminSecret, map[string]any{"graceSeconds": 2592000}).is(200).object()["secret"].(string))
		x.do("GET", "/v1/runs", secrets[len(secrets)-1], nil).is(200) // so it is no stranger's afterwards
	}
	for i, secret := range secrets {
		want := 401
		if i >= len(secrets)-11 {
			want = 200
		}
		if got := x.do("GET", "/v1/runs", secret, nil).status; got != want {
			t.Errorf("secret %d of %d: got %d, want %d", i+1, len(secrets), got, want)
		}
		time.Sleep(time.Second)
	}
	names := slices.Clone(secrets)
	slices.Reverse(names)
	for i := range 350 { // so that two of this record are nearly a batch
		names = append(names, fmt.Sprint(i))
	}
	put := namesOf(t, "shop", names)
	earlier := storage.Batch{If: []storage.Condition{storage.Present(put.Key)}, Ops: []storage.Op{put}}
	for k, v := range valid {
		earlier.Ops = append(earlier.Ops, storage.Put([]byte(k), []byte(v)))
	}
	if err := s.Storage.Commit(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	x.do("GET", "/v1/runs", secrets[0], nil).is(200)
	change(x, control.Key{ID: "shop", Secret: secrets[len(secrets)-1], Scopes: []string{"runs:read"}})
	for i, secret := range secrets[:len(secrets)-11] {
		if got := x.do("GET", "/v1/runs", secret, nil).status; got != 401 {
			t.Errorf("changed: secret %d of %d: got %d, want 401", i+1, len(secrets), got)
		}
		time.Sleep(time.Second)
	}
	x.do("DELETE", "/v1/keys/shop", adminSecret, nil).is(204)
	for i, secret := range secrets {
		if got := x.do("GET", "/v1/runs", secret, nil).status; got != 401 {
			t.Errorf("revoked: secret %d of %d: got %d, want 401", i+1, len(secrets), got)
		}
		time.Sleep(time.Second)
	}
}

// namesOf returns the record of a key with these secrets, the newest first.
func namesOf(t *testing.T, key string, secrets []string) storage.Op {
	t.Helper()
	var id struct {
		Hashes  [][]byte `cbor:"1,keyasint"`
		Created int64    `cbor:"2,keyasint"`
		Changed int64    `cbor:"4,keyasint"`
	}
	for _, secret := range secrets {
		hash := sha256.Sum256([]byte(secret))
		id.Hashes = append(id.Hashes, hash[:])
	}
	at := keys.ControlKeyID("default/default", key)
	raw, err := record.Seal(at, 1, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	return storage.Put(at, raw)
}

// HTTP-7: of a key with more secrets than can be valid, which an earlier release left, those in use are revoked first. There
// may be more of the others than a call has time for, or one that only a newer release can read.
func TestSecretsInUseAreRevokedFirst(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s)
	names := []string{readerSecret}
	for i := range 20 {
		names = append(names, fmt.Sprint(i))
	}
	raw, err := record.Seal(recordOf("19"), 2, struct{}{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{namesOf(t, "reader", names), storage.Put(recordOf("19"), raw)}}); err != nil {
		t.Fatal(err)
	}
	x.do("GET", "/v1/runs", readerSecret, nil).is(200)
	x.do("DELETE", "/v1/keys/reader", adminSecret, nil).fails(500, "damaged")
	x.do("GET", "/v1/runs", readerSecret, nil).is(401)
}

// HTTP-7: nobody is accepted by a secret whose record is damaged or gone, so the key is rotated and revoked as if it had no such secret.
func TestChangesBesideADamagedSecret(t *testing.T) {
	for _, damage := range []storage.Op{storage.Put(nil, []byte("damaged")), {Kind: storage.DeleteOp}} {
		s := new(memory.Store)
		shop := control.Key{ID: "shop", Secret: "the-first-secret-of-the-shop", Scopes: []string{"runs:read"}}
		x := serve(t, s, withKeys(shop))
		rotate := func() string {
			return x.do("POST", "/v1/keys/shop/rotate", adminSecret, nil).is(200).object()["secret"].(string)
		}
		secrets := []string{shop.Secret, rotate()}
		damaged := func(secret string) {
			t.Helper()
			damage.Key = recordOf(secret)
			if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{damage}}); err != nil {
				t.Fatal(err)
			}
		}
		damaged(secrets[0])
		secrets = append(secrets, rotate())
		shop.Secret = newSecret
		x = serve(t, s, withKeys(shop))
		damaged(newSecret) // the one in use
		x.do("POST", "/v1/keys/shop/rotate", adminSecret, nil).fails(500, "damaged")
		x.do("GET", "/v1/keys", adminSecret, nil).fails(500, "damaged")
		config, _ := configOf(t, s)
		withKeys(shop)(&config)
		for range 2 {
			if _, err := control.New(config); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("the secret in use, of Config.Keys: got %v", err)
			}
		}
		shop.Secret = "the-newest-secret-of-the-shop"
		x = serve(t, s, withKeys(shop))
		damaged(shop.Secret)
		for _, want := range []int{200, 401} {
			x.do("GET", "/v1/runs", secrets[1], nil).is(want)
			x.do("GET", "/v1/runs", secrets[2], nil).is(want)
			x.do("DELETE", "/v1/keys/shop", adminSecret, nil).is(204)
		}
	}
}

// HTTP-7: a revoked key is revoked again with a secret whose record has come back.
func TestARecordThatComesBack(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s)
	raw, err := s.Get(t.Context(), recordOf(readerSecret))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(recordOf(readerSecret), raw)}}); err != nil {
			t.Fatal(err)
		}
		x.do("GET", "/v1/runs", readerSecret, nil).is(200)
		x.do("DELETE", "/v1/keys/reader", adminSecret, nil).is(204)
		x.do("GET", "/v1/runs", readerSecret, nil).is(401)
	}
}

// HTTP-7: a newer release may accept a secret whose record only that can read. So the key is not said to be revoked, and is not rotated.
func TestASecretOfANewerRelease(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s)
	secret := x.do("POST", "/v1/keys/reader/rotate", adminSecret, nil).is(200).object()["secret"].(string)
	raw, err := record.Seal(recordOf(readerSecret), 2, struct{}{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(recordOf(readerSecret), raw)}}); err != nil {
		t.Fatal(err)
	}
	x.do("DELETE", "/v1/keys/reader", adminSecret, nil).fails(500, "damaged")
	x.do("POST", "/v1/keys/reader/rotate", adminSecret, nil).fails(500, "damaged")
	x.do("GET", "/v1/runs", secret, nil).is(200)
}

// HTTP-7: what is taken from a key of Config.Keys is taken from all its secrets. A former secret in Config.Keys, which
// are outdated then, gives nothing back.
func TestScopesOfFormerSecrets(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		old := "the-first-secret-of-the-shop"
		shop := control.Key{ID: "shop", Secret: old, Scopes: []string{"runs:read", "deploy:read", "trigger:write"}}
		serve(t, s, withKeys(shop)).do("GET", "/v1/runs", old, nil).is(200)
		asks := func(x *site, runs, deployments, start int) {
			t.Helper()
			for _, secret := range []string{old, newSecret} {
				x.do("GET", "/v1/runs", secret, nil).is(runs)
				x.do("GET", "/v1/deployments", secret, nil).is(deployments)
				x.do("POST", "/v1/runs", secret, nil).is(start)
			}
		}
		outdated := shop

		shop.Secret, shop.Scopes = newSecret, []string{"runs:read", "deploy:read"}
		asks(serve(t, s, withKeys(shop)), 200, 200, 403)
		shop.Scopes = []string{"runs:read"}
		asks(serve(t, s, withKeys(shop)), 200, 403, 403)
		asks(serve(t, s, withKeys(outdated)), 200, 403, 403)
	})
}

// HTTP-7: the expiry of a key of Config.Keys is that of all its secrets.
func TestExpiryOfFormerSecrets(t *testing.T) {
	for name, together := range map[string]bool{"with another secret": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				shop := control.Key{ID: "shop", Secret: "the-first-secret-of-the-shop", Scopes: []string{"runs:read"}}
				x := planeOn(t, s, withKeys(shop))
				old := shop.Secret
				x.do("GET", "/v1/runs", old, nil).is(200)
				shop.Secret = newSecret
				if !together {
					planeOn(t, s, withKeys(shop))
				}
				shop.ExpiresAt = time.Now().Add(time.Minute)
				planeOn(t, s, withKeys(shop))
				for _, want := range []int{200, 401} {
					x.do("GET", "/v1/runs", old, nil).is(want)
					x.do("GET", "/v1/runs", newSecret, nil).is(want)
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// HTTP-7: the times of keys, to the second.
func TestTimesOfKeys(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		expires := time.Now().Add(time.Hour)
		secret := x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}, "expiresAt": expires}).is(201).object()["secret"].(string)
		rotated := x.do("POST", "/v1/keys/shop/rotate", adminSecret, map[string]any{"graceSeconds": 60}).is(200).object()
		next := rotated["secret"].(string)
		for _, c := range []struct {
			after        time.Duration
			former, used int
		}{{59 * time.Second, 200, 200}, {time.Second, 401, 200}, {58*time.Minute + 59*time.Second, 401, 200}, {time.Second, 401, 401}} {
			time.Sleep(c.after)
			x.do("GET", "/v1/runs", secret, nil).is(c.former)
			x.do("GET", "/v1/runs", next, nil).is(c.used)
		}
		x.do("POST", "/v1/keys", adminSecret, map[string]any{"scopes": []string{"runs:read"}, "expiresAt": time.Now()}).fails(400, "invalid_request")
	})
}

// HTTP-4, HTTP-10: what is known of a key. Its id is its namespace's: no answer tells of others.
func TestKeysOfNamespaces(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		x := serve(t, s)
		x.do("POST", "/v1/keys", otherSecret, map[string]any{"keyId": "root", "scopes": []string{"runs:read"}}).is(201) // home has one too
		x.do("POST", "/v1/keys", otherSecret, map[string]any{"keyId": "root", "scopes": []string{"runs:read"}}).fails(409, "key_exists")
		x.do("POST", "/v1/keys/reader/rotate", otherSecret, nil).fails(404, "not_found")
		x.do("DELETE", "/v1/keys/reader", otherSecret, nil).fails(404, "not_found")
		x.do("POST", "/v1/keys", otherSecret, map[string]any{"project": "default", "environment": "default", "scopes": []string{"admin"}}).fails(403, "missing_scope")
		x.do("GET", "/v1/keys?environment=test", otherSecret, nil).fails(403, "missing_scope")
		x.do("DELETE", "/v1/keys/reader?project=default&environment=default", otherSecret, nil).fails(403, "missing_scope")

		mine := x.do("GET", "/v1/keys?sortOrder=asc", otherSecret, nil).data()
		if ids := keysOf(mine, "keyId"); len(ids) != 2 || ids[0] != "other" || ids[1] != "root" {
			t.Errorf("the keys of acme: got %v", mine)
		}
		if k := mine[0]; k["project"] != "acme" || k["environment"] != "prod" || k["createdAt"] == nil || k["secret"] != nil || k["scopes"].([]any)[0] != "admin" {
			t.Errorf("got %v", k)
		}
		if all := x.do("GET", "/v1/keys", adminSecret, nil).data(); len(all) != 4 {
			t.Errorf("all keys: got %v", all)
		}
		if its := x.do("GET", "/v1/keys?project=acme&environment=prod", adminSecret, nil).data(); len(its) != 2 {
			t.Errorf("the keys of acme for home: got %v", its)
		}
		x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "test", "project": "acme", "environment": "test", "scopes": []string{"runs:read"}}).is(201)
		x.do("DELETE", "/v1/keys/test?project=acme&environment=test", adminSecret, nil).is(204)
	})
}

// Keys are listed a page at a time, and a cursor belongs to its list.
func TestPagesOfKeys(t *testing.T) {
	x := serve(t, new(memory.Store))
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		x.do("POST", "/v1/keys", otherSecret, map[string]any{"keyId": id, "scopes": []string{"runs:read"}}).is(201)
	}
	for order, want := range map[string]string{"asc": "a b c d e other", "desc": "other e d c b a"} {
		var got []string
		cursor := ""
		for range 10 {
			r := x.do("GET", "/v1/keys?limit=4&sortOrder="+order+"&cursor="+cursor, otherSecret, nil)
			for _, id := range keysOf(r.data(), "keyId") {
				got = append(got, id.(string))
			}
			if r.object()["hasMore"] != true {
				if r.object()["cursor"] != nil {
					t.Errorf("the last page has the cursor %v", r.object()["cursor"])
				}
				break
			}
			cursor = r.object()["cursor"].(string)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", order, got, want)
		}
	}
	root := x.do("GET", "/v1/keys?limit=1&sortOrder=desc", adminSecret, nil).object()["tail"].(string)
	x.do("GET", "/v1/keys?cursor="+root, otherSecret, nil).fails(400, "invalid_request")
	for _, bad := range []string{"x", "!", strings.Repeat("a", 3000)} {
		x.do("GET", "/v1/keys?cursor="+bad, otherSecret, nil).fails(400, "invalid_request")
	}
	x.do("GET", "/v1/keys?limit=0", otherSecret, nil).fails(400, "invalid_request")
	x.do("GET", "/v1/keys?limit=1001", otherSecret, nil).fails(400, "invalid_request")
	x.do("GET", "/v1/keys?sortOrder=up", otherSecret, nil).fails(400, "invalid_request")
}

// What a key must not be is refused, with the name of the field.
func TestBadKeys(t *testing.T) {
	x := serve(t, new(memory.Store))
	for body, path := range map[string]string{
		`{}`:                                          "/scopes",
		`{"scopes":[]}`:                               "/scopes",
		`{"scopes":["root"]}`:                         "/scopes",
		`{"scopes":["Admin"]}`:                        "/scopes",
		`{"scopes":["runs:read"],"keyId":""}`:         "/keyId",
		`{"scopes":["runs:read"],"keyId":"a/b"}`:      "/keyId",
		`{"scopes":["runs:read"],"keyId":null}`:       "/keyId",
		`{"scopes":["runs:read"],"keyid":"a"}`:        "/keyid",
		`{"scopes":["runs:read"],"project":"a b"}`:    "/project",
		`{"scopes":["runs:read"],"environment":"é"}`:  "/environment",
		`{"scopes":["runs:read"],"expiresAt":"soon"}`: "/expiresAt",
		`{"scopes":["runs:read"],"secret":"mine"}`:    "/secret",
	} {
		r := x.do("POST", "/v1/keys", adminSecret, body).fails(400, "invalid_request")
		issues, _ := r.object()["details"].(map[string]any)["issues"].([]any)
		if len(issues) != 1 || issues[0].(map[string]any)["path"] != path {
			t.Errorf("%s: got %s, want a problem of %s", body, r.body, path)
		}
	}
	x.do("POST", "/v1/keys/reader/rotate", adminSecret, `{"graceSeconds":2592001}`).fails(400, "invalid_request")
	x.do("POST", "/v1/keys/reader/rotate", adminSecret, `{"graceSeconds":-1}`).fails(400, "invalid_request")
}

// New says what is wrong with its configuration, and writes nothing then.
func TestConfig(t *testing.T) {
	long := strings.Repeat("s", 24)
	for what, c := range map[string]struct {
		change func(*control.Config)
		field  string
	}{
		"no engine":         {func(c *control.Config) { c.Engine = nil }, "Engine"},
		"short secret":      {func(c *control.Config) { c.Keys[0].Secret = "short" }, "Keys[0]"},
		"secret with space": {func(c *control.Config) { c.Keys[0].Secret = long + " " }, "Keys[0]"},
		"no id":             {func(c *control.Config) { c.Keys[1].ID = "" }, "Keys[1]"},
		"unknown scope":     {func(c *control.Config) { c.Keys[0].Scopes = []string{"root"} }, "Keys[0]"},
		"no scope":          {func(c *control.Config) { c.Keys[0].Scopes = nil }, "Keys[0]"},
		"two of one id":     {func(c *control.Config) { c.Keys[1].ID = "root" }, "Keys[1]"},
		"two of one secret": {func(c *control.Config) { c.Keys[1].Secret = adminSecret }, "Keys[1]"},
		"half a namespace":  {func(c *control.Config) { c.Keys[0].Project = "acme" }, "Keys[0]"},
		"home":              {func(c *control.Config) { c.Home = control.Namespace{Project: "a/b", Environment: "c"} }, "Home"},
		"rate":              {func(c *control.Config) { c.RateLimit = -1 }, "RateLimit"},
		"https":             {func(c *control.Config) { c.HTTPS = 7 }, "HTTPS"},
		"hops":              {func(c *control.Config) { c.Proxies.Hops = 1 }, "Proxies.Trusted"},
		"ttl":               {func(c *control.Config) { c.IdempotencyTTL = time.Second }, "IdempotencyTTL"},
		"body":              {func(c *control.Config) { c.MaxBody = 17 << 20 }, "MaxBody"},
		"world": {func(c *control.Config) {
			w, err := world.Open(new(memory.Store), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Close)
			c.World = w
		}, "World"},
		"webhook": {func(c *control.Config) { c.Webhooks = map[string]http.Handler{"acme": nil} }, "Webhooks"},
	} {
		s := new(memory.Store)
		cfg, _ := configOf(t, s)
		before := dump(t, s)
		c.change(&cfg)
		p, err := control.New(cfg)
		if p != nil {
			p.Close()
		}
		if bad, ok := errors.AsType[*control.ConfigError](err); !ok || bad.Field != c.field {
			t.Errorf("%s: got %v, want a problem of %s", what, err, c.field)
		}
		if err != nil && (strings.Contains(err.Error(), adminSecret) || strings.Contains(err.Error(), long)) {
			t.Errorf("%s: the error has a secret: %v", what, err)
		}
		if after := dump(t, s); len(after) != len(before) {
			t.Errorf("%s: got %v in the store", what, after)
		}
	}
}

// A secret belongs to one key, also across processes.
func TestASecretOfAnotherKey(t *testing.T) {
	s := new(memory.Store)
	serve(t, s)
	cfg, _ := configOf(t, s)
	cfg.Keys = []control.Key{{ID: "thief", Secret: readerSecret, Scopes: []string{"admin"}}}
	if _, err := control.New(cfg); err == nil || !strings.Contains(err.Error(), "thief") {
		t.Errorf("got %v", err)
	}
}
