package api

// Error is what a client is told when its call fails. OpenAI's shape, of every grammar but
// Anthropic's two, is
//
//	{"error":{"message":…,"type":…,"param":…,"code":…,"request_id":…}}
//
// OpenAI's SDKs choose their exception by the HTTP status and show message, type, param
// and code (strings, or null; openai-go decodes code into a string). The request id
// stands inside, where they keep unknown fields. Anthropic's shape is
//
//	{"type":"error","error":{"type":…,"message":…},"request_id":…}
//
// and has no room for code and param.
type Error struct {
	Status    int    // HTTP status
	Type      string // empty: the one that goes with Status in the grammar's API
	Code      string // empty: null
	Param     string // the field of the body that is to blame; empty: null
	Message   string
	RequestID string // empty: left out
}

// kind returns the error's type in the words of the grammar's API.
func (e Error) kind(g Grammar) string {
	switch {
	case e.Type != "":
		return e.Type
	case grammars[g].answer == messagesAnswer:
		return anthropicType(e.Status)
	default:
		return openaiType(e.Status)
	}
}

// openaiType returns the type that goes with a status where there is no better one. The
// names are those that OpenAI's and Anthropic's documentation share or give alone; any
// other status is the client's mistake below 500 and the server's from there on.
func openaiType(status int) string {
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

// anthropicErrors are the statuses that Anthropic's documentation of errors lists, with
// their types.
var anthropicErrors = [...]struct {
	status int
	kind   string
}{
	{400, "invalid_request_error"},
	{401, "authentication_error"},
	{402, "billing_error"},
	{403, "permission_error"},
	{404, "not_found_error"},
	{413, "request_too_large"},
	{429, "rate_limit_error"},
	{500, "api_error"},
	{504, "timeout_error"},
	{529, "overloaded_error"},
}

// anthropicType returns Anthropic's type for a status. 503 is what others answer where
// Anthropic answers 529; any status that isn't listed is its class's first one.
func anthropicType(status int) string {
	switch {
	case status == 503:
		status = 529
	case status == 408:
		status = 504
	}
	for _, e := range anthropicErrors {
		if e.status == status {
			return e.kind
		}
	}
	if status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

// anthropicStatus returns the status of one of Anthropic's types, 0 for any other.
func anthropicStatus(kind []byte) int {
	for _, e := range anthropicErrors {
		if e.kind == string(kind) {
			return e.status
		}
	}
	return 0
}

// AppendError appends the envelope to dst, in the shape that the grammar's SDKs expect.
func AppendError(dst []byte, g Grammar, e Error) []byte {
	if grammars[g].answer != messagesAnswer {
		dst = append(dst, `{"error":`...)
		dst = appendDetails(dst, g, e)
		return append(dst, '}')
	}
	dst = append(dst, `{"type":"error","error":{"type":`...)
	dst = AppendString(dst, e.kind(g))
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, '}')
	dst = appendRequestID(dst, e)
	return append(dst, '}')
}

// appendDetails appends what OpenAI's envelope holds.
func appendDetails(dst []byte, g Grammar, e Error) []byte {
	dst = append(dst, `{"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, e.kind(g))
	dst = append(dst, `,"param":`...)
	dst = appendOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOrNull(dst, e.Code)
	dst = appendRequestID(dst, e)
	return append(dst, '}')
}

func appendRequestID(dst []byte, e Error) []byte {
	if e.RequestID == "" {
		return dst
	}
	dst = append(dst, `,"request_id":`...)
	return AppendString(dst, e.RequestID)
}
