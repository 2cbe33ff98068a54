// Package bulk does one operation to each of many workflows.
//
// [Bulks] has what operators ask for (start, stop, list), and the duty by which an engine carries bulk
// operations out (serve).
//
// A bulk is one record, bulk:{id} (record). It has how far the list of its filter was read, and the page
// that was read last. A page is written before anything is done to its workflows. After it was done, one commit
// counts its outcomes, lists what was refused, as bref:{id}:{n}, and writes the next page. So after a crash one
// page is repeated, with the same workflows, and each operation recognizes that it was done (operation): its
// actor, its signal's ID and the generation belong to this bulk alone.
//
// One engine carries a bulk out: the record names it. When that engine is gone, the next that looks takes over.
// While two do so for a moment, because one does not know yet that it is declared dead, the conditions of
// each operation keep it from being done twice.
package bulk
