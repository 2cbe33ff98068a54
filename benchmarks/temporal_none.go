//go:build !temporal

package main

import "context"

// openTemporal is in the program that is built with it.
var openTemporal func(context.Context, Site) (System, error)
