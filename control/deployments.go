package control

func deploymentOperations() []*operation { return nil }
