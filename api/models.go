package api

import "strconv"

// Model is an entry of the list of models.
type Model struct {
	ID      string
	Created int64 // seconds since 1970
	OwnedBy string
	Parent  string // the model that a LoRA adapter adapts; "" for a model
}

// AppendModels appends the body of GET /v1/models.
func AppendModels(dst []byte, models []Model) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModelEntry(dst, m)
	}
	return append(dst, "]}"...)
}

// AppendModelEntry appends the body of GET /v1/models/{id}.
func AppendModelEntry(dst []byte, m Model) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, m.ID)
	dst = append(dst, `,"object":"model","created":`...)
	dst = strconv.AppendInt(dst, m.Created, 10)
	dst = append(dst, `,"owned_by":`...)
	dst = AppendString(dst, m.OwnedBy)
	if m.Parent != "" {
		dst = AppendString(append(dst, `,"parent":`...), m.Parent)
	}
	return append(dst, '}')
}
