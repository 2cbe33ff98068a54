package engine

import "github.com/weft-go/weft/storage"

// StorageOf is the store that an engine was made with.
func StorageOf(e *Engine) storage.Storage { return e.config.Storage }
