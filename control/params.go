package control

func fieldsOf[P any]() []field { return nil }

func readParams[P any](raw []byte) (any, []issue) { return new(P), nil }
