package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

const someStacks = `kvasir
	ffff1 tcp_sendmsg
	ffff2 entry_SYSCALL_64_after_hwframe
	4010 syscall.write
	4011 net/http.(*response).FlushError
	4012 kvasir/gateway/proxy.(*call).write
	4013 net/http.(*conn).serve

kvasir
	4020 kvasir/api.(*parser).text
	4021 kvasir/api.(*Reader).Prompt
	4022 kvasir/gateway/proxy.(*call).identify
	4013 net/http.(*conn).serve

kvasir
	4030 runtime.scanobject
	4031 runtime.gcBgMarkWorker

kvasir
	4020 kvasir/api.(*parser).text
	4021 kvasir/api.(*Reader).Prompt
	4013 net/http.(*conn).serve
`

func TestSamplesGoToTheFirstPartOfTheirStack(t *testing.T) {
	shares, samples := readStacks(strings.NewReader(someStacks))
	var out bytes.Buffer
	printParts(&out, shares, samples, 100*time.Microsecond)
	want := `100.0 µs a call, of that in the kernel in brackets; 4 samples
 50.0 %     50.00 µs  (   0.00)  kvasir: decode and hash the prompt
 25.0 %     25.00 µs  (   0.00)  runtime: collector
 25.0 %     25.00 µs  (  25.00)  server: answer
`
	if out.String() != want {
		t.Errorf("got\n%s\nexpected\n%s", out.String(), want)
	}
}

func TestUnknownStacksAreOther(t *testing.T) {
	shares, samples := readStacks(strings.NewReader("nginx\n\t1 main\n\nnginx\n\n"))
	if len(shares) != 1 || samples != 1 || shares[0].name != otherPart {
		t.Errorf("got %v of %d samples; expected one sample of %q", shares, samples, otherPart)
	}
}
