package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"

	"github.com/weft-go/weft/storage"
)

// A checker checks a file's structure before bbolt reads it, because bbolt does not: a
// cycle in a tree would end the process (a stack overflow cannot be recovered), a page
// that is both free and in use would be overwritten, and if the file has no list of free
// pages, bbolt builds one in a goroutine where nobody recovers a fault.
//
// It checks the free list and the branch pages, hardly a hundredth of a file. It does not
// check the entries: reading a damaged entry returns an error.
type checker struct {
	file   *os.File
	size   int64
	meta   meta
	marked []bool // pages that were visited, by number
	bucket []byte
}

// A meta is the data that a commit writes last, to one of the first two pages, in the
// byte order of the machine.
type meta struct {
	Magic, Version, PageSize, _ uint32
	Root, _, Freelist, Pages    uint64
	Txid, Sum                   uint64
}

const (
	magic      = 0xED0CDAED
	version    = 2
	noFreelist = ^uint64(0)

	metaSize    = 64
	headerSize  = 16
	elementSize = 16 // of branches and of leaves

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketEntry = 0x01
	maxDepth    = 32
)

var order = binary.NativeEndian

// check returns an error that wraps storage.ErrCorrupt if the file is damaged. A file
// that is not a bbolt file at all is left for bbolt to report.
func check(f *os.File, bucket []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c := &checker{file: f, size: info.Size(), bucket: bucket}
	if !c.readMeta() {
		return nil
	}
	if need := int64(c.meta.Pages) * int64(c.meta.PageSize); c.meta.Pages > 1<<48 || c.size < need {
		return corrupt("%d bytes of a file that has %d pages of %d bytes", c.size, c.meta.Pages, c.meta.PageSize)
	}
	if c.meta.Freelist == noFreelist {
		return fmt.Errorf("the list of free pages is not in the file: open it once without NoFreelistSync")
	}
	c.marked = make([]bool, c.meta.Pages)
	if err := c.freelist(); err != nil {
		return err
	}
	root := uint64(0)
	if err := c.leaves(c.meta.Root, 0, func(p page) error { return c.find(p, &root) }); err != nil || root == 0 {
		return err
	}
	return c.branches(root)
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, fmt.Sprintf(format, args...))
}

// readMeta finds the meta of the latest commit, in the same way as bbolt.
func (c *checker) readMeta() bool {
	first, ok := c.metaAt(0)
	for i := 0; !ok && i <= 14; i++ {
		first, ok = c.metaAt(1024 << i)
	}
	if !ok || first.PageSize < 1024 || first.PageSize&(first.PageSize-1) != 0 {
		return false
	}
	c.meta = first
	for _, at := range []int64{0, int64(first.PageSize)} {
		if m, ok := c.metaAt(at); ok && m.PageSize == first.PageSize && m.Txid > c.meta.Txid {
			c.meta = m
		}
	}
	return true
}

func (c *checker) metaAt(at int64) (m meta, ok bool) {
	var b [metaSize]byte
	if _, err := c.file.ReadAt(b[:], at+headerSize); err != nil {
		return m, false
	}
	binary.Read(bytes.NewReader(b[:]), order, &m)
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	return m, m.Magic == magic && m.Version == version && m.Sum == sum.Sum64()
}

// A page is a page together with its overflow pages.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte
}

// page reads a page, which must not have been visited before.
func (c *checker) page(id uint64) (page, error) {
	if err := c.mark(id); err != nil {
		return page{}, err
	}
	size := int64(c.meta.PageSize)
	data := make([]byte, size)
	if _, err := c.file.ReadAt(data, int64(id)*size); err != nil {
		return page{}, err
	}
	p := page{id: order.Uint64(data), flags: order.Uint16(data[8:]), count: int(order.Uint16(data[10:]))}
	overflow := uint64(order.Uint32(data[12:]))
	if p.id != id || overflow >= c.meta.Pages-id {
		return p, corrupt("page %d has the number %d in its header and overflows %d pages", id, p.id, overflow)
	}
	for i := range overflow {
		if err := c.mark(id + 1 + i); err != nil {
			return p, err
		}
	}
	p.data = append(data, make([]byte, int64(overflow)*size)...)
	_, err := c.file.ReadAt(p.data[size:], (int64(id)+1)*size)
	return p, err
}

// mark marks a page as visited.
func (c *checker) mark(id uint64) error {
	if id < 2 || id >= c.meta.Pages {
		return corrupt("there is a reference to page %d of %d", id, c.meta.Pages)
	}
	if c.marked[id] {
		return corrupt("there are two references to page %d", id)
	}
	c.marked[id] = true
	return nil
}

func (c *checker) freelist() error {
	p, err := c.page(c.meta.Freelist)
	if err != nil {
		return err
	}
	ids, count := p.data[headerSize:], uint64(p.count)
	if count == 0xffff {
		ids, count = ids[8:], order.Uint64(ids)
	}
	if p.flags != freelistPage || count > uint64(len(ids)/8) {
		return corrupt("page %d is not a list of %d free pages", p.id, count)
	}
	for i := range count {
		if err := c.mark(order.Uint64(ids[8*i:])); err != nil {
			return err
		}
	}
	return nil
}

// leaves calls visit for the leaves of the tree under page id.
func (c *checker) leaves(id uint64, depth int, visit func(page) error) error {
	p, err := c.page(id)
	if err != nil {
		return err
	}
	if p.flags == leafPage {
		return visit(p)
	}
	children, err := c.children(p, depth)
	for _, child := range children {
		if err == nil {
			err = c.leaves(child, depth+1, visit)
		}
	}
	return err
}

// find looks for the store's bucket in a leaf of the tree of buckets, and sets root to its
// root page, or to 0 if the bucket is stored inline in the leaf.
func (c *checker) find(p page, root *uint64) error {
	for i := range p.count {
		at := headerSize + i*elementSize
		if at+elementSize > len(p.data) {
			return corrupt("page %d has no room for %d entries", p.id, p.count)
		}
		e := p.data[at:]
		from := int64(at) + int64(order.Uint32(e[4:]))
		key := from + int64(order.Uint32(e[8:]))
		value := key + int64(order.Uint32(e[12:]))
		if value > int64(len(p.data)) {
			return corrupt("entry %d of page %d is not in the page", i, p.id)
		}
		if order.Uint32(e)&bucketEntry == 0 || !bytes.Equal(p.data[from:key], c.bucket) {
			continue
		}
		if value-key < headerSize {
			return corrupt("the bucket %q is %d bytes", c.bucket, value-key)
		}
		*root = order.Uint64(p.data[key:])
	}
	return nil
}

// branches checks the branch pages of the tree under page id, level by level. All leaves
// are on the same level, so the first page of a level tells the type of all.
func (c *checker) branches(id uint64) error {
	level := []uint64{id}
	for depth := 0; ; depth++ {
		branch, err := c.isBranch(level[0])
		if err != nil {
			return err
		}
		var next []uint64
		for _, id := range level {
			if !branch {
				err = c.mark(id)
			} else {
				var p page
				var children []uint64
				if p, err = c.page(id); err == nil {
					children, err = c.children(p, depth)
				}
				next = append(next, children...)
			}
			if err != nil {
				return err
			}
		}
		if !branch {
			return nil
		}
		level = next
	}
}

func (c *checker) isBranch(id uint64) (bool, error) {
	if id < 2 || id >= c.meta.Pages {
		return false, corrupt("there is a reference to page %d of %d", id, c.meta.Pages)
	}
	var flags [2]byte
	_, err := c.file.ReadAt(flags[:], int64(id)*int64(c.meta.PageSize)+8)
	return order.Uint16(flags[:]) == branchPage, err
}

// children returns the children of a branch page.
func (c *checker) children(p page, depth int) ([]uint64, error) {
	if p.flags != branchPage || p.count == 0 || depth > maxDepth || headerSize+p.count*elementSize > len(p.data) {
		return nil, corrupt("page %d has the type %#x and %d branches at depth %d", p.id, p.flags, p.count, depth)
	}
	var children []uint64
	for i := range p.count {
		at := headerSize + i*elementSize
		e := p.data[at:]
		if int64(at)+int64(order.Uint32(e))+int64(order.Uint32(e[4:])) > int64(len(p.data)) {
			return nil, corrupt("branch %d of page %d is not in the page", i, p.id)
		}
		children = append(children, order.Uint64(e[8:]))
	}
	return children, nil
}
