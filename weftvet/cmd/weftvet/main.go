// Command weftvet checks workflow code, see package weftvet:
//
//	weftvet ./...
//	go vet -vettool=$(which weftvet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/weft-go/weft/weftvet"
)

func main() { singlechecker.Main(weftvet.Analyzer) }
