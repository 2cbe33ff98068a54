// Command server is the etcd server that the tests of storage/etcd start. It is a module of
// its own, so that neither the store nor its users depend on the server's code.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
