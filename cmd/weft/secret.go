package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/weft-go/weft/control"
)

// A fileKey is a key in a file of keys, which is a JSON array of them.
type fileKey struct {
	ID          string    `json:"id"`
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Secret      string    `json:"secret"`
	Scopes      []string  `json:"scopes"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`
}

// newSecret makes the secret of a key.
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return "weft_sk_" + base64.RawURLEncoding.EncodeToString(b)
}

// readPrivate reads a file that has secrets. Nobody but its owner may be able to read or write it.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has the mode %04o, and has secrets that others must not see: chmod 600 %s", word(path), mode, word(path))
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(f); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// readKeys reads a file of keys. Its errors show no secret.
func readKeys(path string) ([]fileKey, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	var all []fileKey
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil || d.More() {
		return nil, fmt.Errorf(`%s is not a JSON array of keys such as [{"id": "shop", "secret": "weft_sk_...", "scopes": ["runs:read"]}]`, word(path))
	}
	return all, nil
}

// makeKeys makes a file of keys with one key that may do everything.
func makeKeys(path, id string) ([]fileKey, error) {
	all := []fileKey{{ID: id, Secret: newSecret(), Scopes: []string{"admin"}}}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(append(data, '\n'))
	return all, errors.Join(err, f.Close())
}

// controlKeys returns the keys of a file as a control plane takes them.
func controlKeys(all []fileKey) (keys []control.Key) {
	for _, k := range all {
		keys = append(keys, control.Key(k))
	}
	return keys
}

// secretOf returns the secret of a key that a client uses: what WEFT_KEY has, or a file with nothing but
// the secret, or the first key of a file of keys.
func secretOf(path string) (string, error) {
	if path == "" {
		secret := os.Getenv("WEFT_KEY")
		if secret == "" {
			return "", misuse("no key is given: set WEFT_KEY to its secret, or give --key-file FILE")
		}
		return secret, nil
	}
	data, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", misuse("there is no key file %s", word(path))
	}
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(data))
	if !strings.HasPrefix(text, "[") {
		return text, nil
	}
	all, err := readKeys(path)
	if err == nil && len(all) == 0 {
		err = misuse("the key file %s has no keys", word(path))
	}
	if err != nil {
		return "", err
	}
	return all[0].Secret, nil
}
