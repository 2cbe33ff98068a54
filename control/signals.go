package control

func signalOperations() []*operation { return nil }
