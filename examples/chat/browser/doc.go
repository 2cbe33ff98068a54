// Package browser tests examples/chat with a real browser, Chromium. It is a module of its own, so that Weft does not depend on
// what drives the browser.
package browser
