module example.com/corpus

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/weft-go/weft v0.0.0
	golang.org/x/exp v0.0.0-20260611194520-c48552f49976
	golang.org/x/sync v0.24.0
)

require (
	github.com/fxamacker/cbor/v2 v2.9.6 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/netresearch/go-cron v0.9.1 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/tidwall/gjson v1.18.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	github.com/wI2L/jsondiff v0.7.1 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/weft-go/weft => ../..
