package workload

import (
	"kvasir/internal/draw"
	"kvasir/internal/seed"
)

// Retrieval is answers from documents, the article's RAG answer (section 13): a first call
// makes a query of the question, and behind the retrieval a second one answers it from what
// was found. The second prompt is
//
//	system prompt   shared by all
//	documents       each the same wherever it is found, in the order in which it was found
//	question
//
// so two answers share documents as far as these are the same from the first one on.
type Retrieval struct {
	Rewrite   Lengths `spec:"rewrite" doc:"tokens of the system prompt of the first call"`
	System    Lengths `spec:"system" doc:"tokens of the system prompt of the second call"`
	Question  Lengths `spec:"question" doc:"tokens of a question, in both calls"`
	Query     Lengths `spec:"query" doc:"tokens of the first call's answer"`
	Gap       Delays  `spec:"gap" doc:"how long the retrieval takes"`
	Documents int     `spec:"documents" doc:"how many there are"`
	Zipf      float64 `spec:"zipf" doc:"how uneven their use is: the k-th is found 1/k^zipf as often as the first; 0: all alike"`
	Found     Lengths `spec:"found" doc:"documents that are found for a question"`
	Document  Lengths `spec:"document" doc:"tokens of a document"`
	Output    Lengths `spec:"output" doc:"tokens of the answer"`
}

const maxFound = 1000

// Validate reports every field outside its range.
func (g Retrieval) Validate() error {
	var c check
	c.lengths("rewrite", g.Rewrite, 0, maxLength/8)
	c.lengths("system", g.System, 0, maxLength/8)
	c.lengths("question", g.Question, 1, maxLength/8)
	c.lengths("query", g.Query, 0, maxLength/8)
	c.whole("documents", g.Documents, 1, maxShared)
	c.number("zipf", g.Zipf, 0, maxZipf)
	c.lengths("found", g.Found, 0, maxFound)
	c.lengths("output", g.Output, 0, maxLength/8)
	_, found := g.Found.Bounds()
	c.lengths("document", g.Document, 0, maxLength/2/max(found, 1))
	return c.join()
}

// Session returns the n-th session, two calls.
func (g Retrieval) Session(root uint64, n int) Session {
	r := seed.New(root, seed.Workload, uint64(n), 0)
	shared := seed.New(root, seed.Workload, 0, 1)
	rewrite, system := g.Rewrite.Draw(&shared), g.System.Draw(&shared)
	own := ownPieces{root, uint64(n), 0}
	question, asked := g.Question.Draw(&r), own.next()
	var first, second growth
	s := Session{Calls: make([]Call, 0, 2)}

	first.add(piece(root, sharedPiece, 0, 0), rewrite)
	first.add(asked, question)
	query := g.Query.Draw(&r)
	s.follow(0, nil, first.tokens, query)
	first.add(own.next(), query)
	first.reveal(s.Calls)

	second.add(piece(root, sharedPiece, 1, 0), system)
	for range g.Found.Draw(&r) {
		document := uint64(draw.Zipf(&r, g.Documents, g.Zipf))
		length := seed.New(root, seed.Workload, document, 3)
		second.add(piece(root, documentPiece, document, 0), g.Document.Draw(&length))
	}
	second.add(asked, question)
	output := g.Output.Draw(&r)
	s.follow(g.Gap.Draw(&r), []int{0}, second.tokens, output)
	second.add(own.next(), output)
	second.reveal(s.Calls[1:])
	return s
}

// Loop says that the answer waits.
func (Retrieval) Loop() string {
	return "Within a session they are closed-loop: the answer's call is sent when that of the query has ended and the retrieval is over."
}

// Count returns 0: they do not end.
func (Retrieval) Count() int { return 0 }
