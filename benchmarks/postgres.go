package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
)

// A server is a PostgreSQL server: one that was named, or a private one with
// default settings.
type server struct {
	admin   *pgx.Conn
	url     string
	version string
	stop    func()
	next    int
}

func startServer(ctx context.Context, url string) (_ *server, err error) {
	s := &server{url: url, stop: func() {}}
	if url == "" {
		private, stop, err := pgtest.Launch()
		if err != nil {
			return nil, err
		}
		s.url, s.stop = private.URL("postgres"), stop
	}
	if s.admin, err = pgx.Connect(ctx, s.url); err != nil {
		s.stop()
		return nil, err
	}
	stop := s.stop
	s.stop = func() {
		s.admin.Close(context.Background())
		stop()
	}
	err = s.admin.QueryRow(ctx, "SHOW server_version").Scan(&s.version)
	for _, durable := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var set string
		if err == nil {
			err = s.admin.QueryRow(ctx, "SHOW "+durable).Scan(&set)
		}
		if err == nil && set != "on" {
			err = fmt.Errorf("the server has %s = %s: it would be compared with durable stores", durable, set)
		}
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// database makes an empty database and returns its URL.
func (s *server) database(ctx context.Context) (address string, drop func(), err error) {
	s.next++
	name := fmt.Sprintf("weft_benchmarks_%d_%d", os.Getpid(), s.next)
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() {
		s.admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		s.admin.Exec(context.Background(), "CHECKPOINT") // so that the next one does not pay for it
	}, nil
}
