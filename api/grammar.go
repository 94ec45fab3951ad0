package api

// Grammar is the language of a route: what its requests ask for and how its answers are
// told. The zero Grammar is Chat. Every method and function here takes those that are
// named below; any other value is a caller's mistake and panics.
type Grammar uint8

// The grammars, with the routes that speak them.
const (
	Chat        Grammar = iota // /v1/chat/completions
	Completions                // /v1/completions
	Embeddings                 // /v1/embeddings
	Responses                  // /v1/responses
	Messages                   // /v1/messages, Anthropic's
	CountTokens                // /v1/messages/count_tokens, Anthropic's
	Rerank                     // /v1/rerank
	Score                      // /v1/score
	Tokenize                   // /tokenize and /detokenize
	Speech                     // /v1/audio/speech: JSON in, bytes out
	Images                     // /v1/images/generations
	Upload                     // multipart/form-data: /v1/audio/transcriptions, /v1/images/edits, …
	Opaque                     // JSON with a model, answer not understood: pooling, classify, moderations

	grammarCount
)

// String returns the grammar's name, in lower case.
func (g Grammar) String() string { return grammars[g].name }

// HasDone reports whether a stream of the grammar ends with a mark of its own: [DONE],
// response.completed or message_stop. Where one has none, the end of the transfer is the
// end of the answer.
func (g Grammar) HasDone() bool { return grammars[g].answer != plainAnswer }

// row is what is known of a grammar.
type row struct {
	name    string
	routing []field      // fields that routing reads; others of the same name are not looked at
	prompt  []ingredient // what the prompt is made of, in the order in which it is hashed
	typed   bool         // a part of a content says by its type whether it is media or structure
	answer  dialect
}

// dialect is how an answer is told, in a stream and in an error.
type dialect uint8

const (
	plainAnswer     dialect = iota // whatever comes is the answer
	chatAnswer                     // choices; OpenAI's end mark
	responsesAnswer                // OpenAI's named events
	messagesAnswer                 // Anthropic's named events and errors
)

// ingredient is a field of which the prompt is made.
type ingredient struct {
	field
	writing
}

// writing is how a field is written into the prompt.
type writing uint8

const (
	// These stand beside a conversation and are part of its prefix.
	asValue   writing = iota // as JSON
	asContent                // a text, or parts
	asEffort                 // the member "effort" of an object
	asBlocks                 // objects, without their cache marks

	// Of these the first that is given is the prompt; the others are not read by engines.
	asMessages
	asItems
	asInputs

	// These make pairs: each query is read together with a document.
	asQuery
	asDocuments
)

// source reports whether the writing is that of a whole prompt.
func (w writing) source() bool { return asMessages <= w && w <= asInputs }

// conversation reports whether the writing is that of a prompt with other fields beside it.
func (w writing) conversation() bool { return w == asMessages || w == asItems }

// grammars is the table of what is known of each grammar.
var grammars = [grammarCount]row{
	Chat:        {name: "chat", routing: sampled, prompt: textPrompt, answer: chatAnswer},
	Completions: {name: "completions", routing: sampled, prompt: textPrompt, answer: chatAnswer},
	Embeddings:  {name: "embeddings", routing: keyed, prompt: textPrompt},
	Responses: {
		name: "responses", typed: true, answer: responsesAnswer,
		routing: []field{
			fieldModel, fieldStream, fieldMaxOutputTokens, fieldPreviousResponseID,
			fieldCacheSalt, fieldSessionID, fieldPromptCacheKey, fieldStore, fieldBackground, fieldPriority,
		},
		prompt: []ingredient{
			{fieldReasoning, asEffort}, {fieldChatTemplateKwargs, asValue}, {fieldTools, asBlocks},
			{fieldInstructions, asContent}, {fieldPreviousResponseID, asValue}, {fieldConversation, asValue},
			{fieldPrompt, asValue}, {fieldInput, asItems},
		},
	},
	Messages: {
		name: "messages", typed: true, answer: messagesAnswer,
		routing: []field{fieldModel, fieldStream, fieldMaxTokens, fieldCacheSalt, fieldSessionID, fieldContainer, fieldMCPServers},
		prompt:  anthropicPrompt,
	},
	CountTokens: {
		name: "count_tokens", typed: true, answer: messagesAnswer,
		routing: []field{fieldModel, fieldCacheSalt, fieldSessionID}, prompt: anthropicPrompt,
	},
	Rerank: {name: "rerank", typed: true, routing: keyed, prompt: pairPrompt},
	Score:  {name: "score", typed: true, routing: keyed, prompt: pairPrompt},
	Tokenize: {name: "tokenize", routing: []field{fieldModel}, prompt: []ingredient{
		{fieldChatTemplateKwargs, asValue}, {fieldChatTemplate, asValue}, {fieldTools, asValue},
		{fieldMessages, asMessages}, {fieldPrompt, asInputs}, {fieldContent, asInputs}, {fieldTokens, asInputs},
	}},
	Speech: {name: "speech", routing: []field{fieldModel, fieldStreamFormat}, prompt: []ingredient{{fieldInput, asInputs}}},
	Images: {name: "images", routing: []field{fieldModel, fieldStream, fieldN}, prompt: []ingredient{{fieldPrompt, asInputs}}},
	Upload: {name: "upload", routing: []field{fieldModel, fieldStream}},
	Opaque: {name: "opaque", routing: keyed, prompt: textPrompt},
}

// sampled are the routing fields of OpenAI's two older routes that generate text.
var sampled = []field{
	fieldModel, fieldStream, fieldStreamOptions, fieldMaxTokens, fieldMaxCompletionTokens, fieldN,
	fieldCacheSalt, fieldSessionID, fieldPromptCacheKey,
	fieldPromptLogprobs, fieldTruncatePromptTokens, fieldPromptEmbeds, fieldEcho, fieldLogprobs, fieldStore, fieldPriority,
}

// keyed are the routing fields of routes whose answers are never streams.
var keyed = []field{
	fieldModel, fieldCacheSalt, fieldSessionID, fieldPromptCacheKey, fieldTruncatePromptTokens, fieldPromptEmbeds, fieldPriority,
}

// textPrompt is a chat, or the text or token ids of a completion or an embedding.
var textPrompt = []ingredient{
	{fieldReasoningEffort, asValue}, {fieldChatTemplateKwargs, asValue}, {fieldChatTemplate, asValue},
	{fieldDocuments, asValue}, {fieldTools, asValue}, {fieldFunctions, asValue},
	{fieldMessages, asMessages}, {fieldPrompt, asInputs}, {fieldInput, asInputs},
}

// anthropicPrompt has the order in which Anthropic's caching works (its documentation of
// prompt caching: tools, system, messages; another thinking keeps tools and system).
var anthropicPrompt = []ingredient{
	{fieldTools, asBlocks}, {fieldSystem, asContent}, {fieldChatTemplateKwargs, asValue},
	{fieldThinking, asValue}, {fieldOutputConfig, asEffort}, {fieldMessages, asMessages},
}

// pairPrompt has the names of vLLM's, Jina's, Cohere's and SGLang's rerankers.
var pairPrompt = []ingredient{
	{fieldQuery, asQuery}, {fieldQueries, asQuery}, {fieldText1, asQuery}, {fieldData1, asQuery},
	{fieldDocuments, asDocuments}, {fieldItems, asDocuments}, {fieldText2, asDocuments}, {fieldData2, asDocuments},
}
