// Refunds is a service that gives customers their money back, each time once.
//
//	go run ./examples/refunds
//	go run ./examples/refunds -store postgres
//
// The service is an HTTP server with three write endpoints. Each of them needs an Idempotency-Key.
//
//	POST /refunds  money goes back through a payment provider, which is another system
//	POST /credits  a voucher: a row in the service's own database
//	POST /returns  the goods come back: a workflow handles that
//
// The program is the customer and the provider, and starts the service as a child. It sends a refund,
// sends it again, and sends another one with the same key. Then it kills the service at the worst
// moment: the provider has made the refund, and the service does not know. At the end it counts.
//
// service.go is what a user of Weft writes. The provider knows its refunds by the key's hash: see
// provider.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"strings"
)

func main() {
	if os.Getenv(childEnv) != "" {
		if err := child(context.Background()); err != nil {
			log.Fatal("service: ", err)
		}
		return
	}
	store := flag.String("store", "sqlite", "sqlite or postgres, of which it starts a private server")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string) error {
	where, remove, err := place(store)
	if err != nil {
		return err
	}
	defer remove()
	acme := newProvider()
	provider := httptest.NewServer(acme)
	defer provider.Close()
	s, err := start(ctx, plan{store, where, provider.URL})
	if err != nil {
		return err
	}
	defer func() { s.kill() }()
	c := &customer{ctx: ctx, service: &s}

	fmt.Println("A refund, and the same request again:")
	first := c.post("/refunds", "key-1", `{"payment":"pay-1","cents":500}`)
	c.expect(first, 201)
	c.expectSame(c.post("/refunds", "key-1", `{"cents":500, "payment":"pay-1"}`), first)

	fmt.Println("\nAnother refund with the same key:")
	c.expect(c.post("/refunds", "key-1", `{"payment":"pay-1","cents":700}`), 409)

	fmt.Println("\nThe service is killed after the provider has made the refund, and before it knows:")
	made, died, victim := acme.hold(), make(chan struct{}), s
	go func() {
		<-made
		victim.kill()
		close(died)
	}()
	c.post("/refunds", "key-2", `{"payment":"pay-2","cents":900}`)
	<-died
	acme.goOn()
	if s, err = start(ctx, plan{store, where, provider.URL}); err != nil {
		return err
	}
	c.expect(c.post("/refunds", "key-2", `{"payment":"pay-2","cents":900}`), 201)
	fmt.Printf("  The service has asked the provider: %d question, %d refunds.\n", acme.questions(), acme.refunds())

	fmt.Println("\nA voucher, which is a row in the transaction of its record:")
	voucher := c.post("/credits", "key-3", `{"customer":"ann","cents":300}`)
	c.expect(voucher, 201)
	c.expectSame(c.post("/credits", "key-3", `{"customer":"ann","cents":300}`), voucher)

	fmt.Println("\nA return, which starts a workflow:")
	comes := c.post("/returns", "key-4", `{"order":"order-9"}`)
	c.expect(comes, 202)
	c.expectSame(c.post("/returns", "key-4", `{"order":"order-9"}`), comes)

	fmt.Println("\nWithout a key:")
	c.expect(c.post("/refunds", "", `{"payment":"pay-5","cents":100}`), 400)

	balance := c.get("/balance")
	fmt.Printf("\nThe provider made %d refunds. The service says: %s\n", acme.refunds(), balance)
	if acme.refunds() != 2 || !strings.Contains(balance, "1 voucher") || !strings.Contains(balance, "1 return") {
		return fmt.Errorf("2 refunds, 1 voucher and 1 return were asked for")
	}
	return c.wrong
}
