package api

import (
	"strconv"
	"unicode/utf8"
)

// Error is what a client is told when its call fails, in OpenAI's shape:
//
//	{"error":{"message":…,"type":…,"param":…,"code":…,"request_id":…}}
//
// OpenAI's SDKs choose their exception by the HTTP status and show message, type, param
// and code (strings, or null; openai-go decodes code into a string). The request id
// stands inside, where they keep unknown fields.
type Error struct {
	Status    int    // HTTP status
	Type      string // empty: ErrorType(Status)
	Code      string // empty: null
	Param     string // the field of the body that is to blame; empty: null
	Message   string
	RequestID string // empty: left out
}

// ErrorType returns the type that goes with a status where there is no better one. The
// names are those that OpenAI's and Anthropic's documentation share or give alone; any
// other status is the client's mistake below 500 and the server's from there on.
func ErrorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 404:
		return "not_found_error"
	case status == 408 || status == 504:
		return "timeout_error"
	case status == 429:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

// AppendError appends the envelope to dst.
func AppendError(dst []byte, e Error) []byte {
	kind := e.Type
	if kind == "" {
		kind = ErrorType(e.Status)
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, kind)
	dst = append(dst, `,"param":`...)
	dst = appendOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOrNull(dst, e.Code)
	if e.RequestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = AppendString(dst, e.RequestID)
	}
	return append(dst, "}}"...)
}

// AppendErrorEvent appends the envelope as an event of a stream. OpenAI's SDKs raise an
// error for any event whose data has an "error". The bytes before it must end between
// two events.
func AppendErrorEvent(dst []byte, e Error) []byte {
	dst = append(dst, "data: "...)
	dst = AppendError(dst, e)
	return append(dst, "\n\n"...)
}

func appendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendString(dst, s)
}

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		} else if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, `\ufffd`...)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// Model is an entry of the list of models.
type Model struct {
	ID      string
	Created int64 // seconds since 1970
	OwnedBy string
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
	return append(dst, '}')
}
