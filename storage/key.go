package storage

import (
	"fmt"
	"strings"
)

// AppendKey appends components to dst, escaped and separated by ':'.
//
// All bytes but A-Z a-z 0-9 . _ ~ - are escaped as %XX, so a ':' in a key is always
// a separator. Components may be any byte strings; SplitKey returns them unchanged.
// Two different lists of the same length never have the same key.
func AppendKey(dst []byte, components ...string) []byte {
	for i, c := range components {
		if i > 0 {
			dst = append(dst, ':')
		}
		dst = appendEscaped(dst, c)
	}
	return dst
}

func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '~' || c == '-'
}

// SplitKey is the inverse of AppendKey. It accepts only what AppendKey produces: a
// lower-case or unnecessary escape is an error.
func SplitKey(key []byte) ([]string, error) {
	parts := strings.Split(string(key), ":")
	for i, p := range parts {
		c, err := unescape(p)
		if err != nil {
			return nil, fmt.Errorf("storage: split key %q: %w", key, err)
		}
		parts[i] = c
	}
	return parts, nil
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		for i := 0; i < len(s); i++ {
			if !plain(s[i]) {
				return "", fmt.Errorf("unescaped %q", s[i])
			}
		}
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if plain(s[i]) {
			out = append(out, s[i])
			continue
		}
		if s[i] != '%' || i+2 >= len(s) {
			return "", fmt.Errorf("broken escape at %q", s[i:])
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", fmt.Errorf("broken escape %q", s[i:i+3])
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	return string(out), nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
