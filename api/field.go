package api

// field is a field of a body that is read. The numbers from fieldReasoningEffort to
// fieldFunctions are hashed with their values, so they must stay.
type field uint8

const (
	other field = iota
	fieldModel
	fieldStream
	fieldStreamOptions
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldN
	fieldCacheSalt
	fieldSessionID
	fieldPromptCacheKey

	fieldReasoningEffort
	fieldChatTemplateKwargs
	fieldChatTemplate
	fieldDocuments
	fieldTools
	fieldFunctions
	fieldMessages
	fieldPrompt
	fieldInput

	fieldStreamFormat
	fieldMaxOutputTokens
	fieldPreviousResponseID
	fieldConversation
	fieldReasoning
	fieldInstructions
	fieldSystem
	fieldThinking
	fieldOutputConfig
	fieldQuery
	fieldQueries
	fieldText1
	fieldText2
	fieldData1
	fieldData2
	fieldItems
	fieldContent
	fieldTokens

	fieldPromptLogprobs
	fieldTruncatePromptTokens
	fieldPromptEmbeds
	fieldEcho
	fieldLogprobs

	fieldPriority
	fieldStore
	fieldBackground
	fieldContainer
	fieldMCPServers

	fieldCount
)

// names are the fields' names in the body; they are matched exactly, as the engines do.
var names = [fieldCount]string{
	fieldModel: "model", fieldStream: "stream", fieldStreamOptions: "stream_options",
	fieldMaxTokens: "max_tokens", fieldMaxCompletionTokens: "max_completion_tokens", fieldN: "n",
	fieldCacheSalt: "cache_salt", fieldSessionID: "session_id", fieldPromptCacheKey: "prompt_cache_key",
	fieldReasoningEffort: "reasoning_effort", fieldChatTemplateKwargs: "chat_template_kwargs",
	fieldChatTemplate: "chat_template", fieldDocuments: "documents",
	fieldTools: "tools", fieldFunctions: "functions",
	fieldMessages: "messages", fieldPrompt: "prompt", fieldInput: "input",
	fieldStreamFormat: "stream_format", fieldMaxOutputTokens: "max_output_tokens",
	fieldPreviousResponseID: "previous_response_id", fieldConversation: "conversation",
	fieldReasoning: "reasoning", fieldInstructions: "instructions",
	fieldSystem: "system", fieldThinking: "thinking", fieldOutputConfig: "output_config",
	fieldQuery: "query", fieldQueries: "queries", fieldText1: "text_1", fieldText2: "text_2",
	fieldData1: "data_1", fieldData2: "data_2", fieldItems: "items",
	fieldContent: "content", fieldTokens: "tokens",
	fieldPromptLogprobs: "prompt_logprobs", fieldTruncatePromptTokens: "truncate_prompt_tokens",
	fieldPromptEmbeds: "prompt_embeds", fieldEcho: "echo", fieldLogprobs: "logprobs",
	fieldPriority: "priority",
	fieldStore:    "store", fieldBackground: "background", fieldContainer: "container", fieldMCPServers: "mcp_servers",
}

// fieldOf returns the field of that name, other where the grammar has none. ofPrompt says
// that it is read with the prompt and by nothing else.
func (w *row) fieldOf(key []byte) (f field, ofPrompt bool) {
	for _, f := range w.routing {
		if names[f] == string(key) {
			return f, false
		}
	}
	for _, in := range w.prompt {
		if names[in.field] == string(key) {
			return in.field, true
		}
	}
	return other, false
}
