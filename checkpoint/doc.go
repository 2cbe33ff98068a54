// Package checkpoint has what the history of a run consists of: checkpoints, their events, and
// the status of a workflow. engine.Engine.History reads it, and engine.Engine.Export writes it
// to a file.
//
// A checkpoint is one commit of a run: the events that it made durable, in order. Their kinds
// and fields are part of the stored format. New ones are added, and none is removed.
package checkpoint
