package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/engine"
	"kvasir/engine/emulator"
)

func engineEnv(out, err io.Writer) environment {
	return environment{stdout: out, stderr: err, getenv: func(string) string { return "" }}
}

func TestEngine_WhenAFlagIsWrong_SaysWhatIsAllowed(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--speed 0", []string{"--speed is 0; allowed: above 0"}},
		{"--speed fast", []string{`invalid value "fast" for flag -speed`}},
		{"--speed 1e9", []string{"--speed is 1e+09; allowed: above 0, at most 1e+06"}},
		{"--profile x", []string{`--profile: accelerator profile "x" is unknown; allowed: `, "llama-3.1-8b/h100"}},
		{"--max-num-seqs 0 --max-num-batched-tokens -1", []string{"--max-num-seqs is 0; allowed: 1 to", "--max-num-batched-tokens is -1; allowed: 1 to"}},
		{"--num-gpu-blocks 1", []string{"--num-gpu-blocks less the empty one is 0; allowed: 1 to"}},
		{"--block-size 0", []string{"--block-size is 0; allowed: 1 to"}},
		{"--num-gpu-blocks 101 --max-model-len 1601", []string{"--max-model-len is 1601; allowed: at most 1600, the tokens of 100 KV blocks"}},
		{"--fault-error-rate 1.5", []string{"--fault-error-rate is 1.5; allowed: 0 to 1"}},
		{"--fault-error-rate 0.5 --fault-stall-rate 0.75", []string{"the sum of the --fault flags is 1.25; allowed: "}},
		{"--model a --alias b,a", []string{"--model with --alias is "}},
		{"--lora-modules a,a", []string{"a name in --lora-modules is a; allowed: names"}},
		{"--lora-modules a --max-loras 0", []string{"--max-loras is 0; allowed: 1 or more"}},
		{"--lora-modules a --max-loras 2 --max-cpu-loras 1", []string{"--max-cpu-loras is 1; allowed: MaxLoRAs, 2, to"}},
		{"--max-loras 2 --emulate-lora-host-load 1s", []string{"--max-loras is given without --lora-modules", "--emulate-lora-host-load is given without"}},
		{"--shutdown-timeout -1s", []string{"--shutdown-timeout is -1s; allowed: 0 or more"}},
		{"--nonsense", []string{"flag provided but not defined: -nonsense"}},
		{"more", []string{`"more" is not a flag`}},
	} {
		var out, err strings.Builder
		if code := runEngine(t.Context(), engineEnv(&out, &err), strings.Fields(c.args)); code != 2 {
			t.Errorf("%s: exit code %d", c.args, code)
		}
		for _, want := range append(c.want, "kvasir engine -h lists the flags.") {
			if !strings.Contains(err.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, err.String())
			}
		}
	}
}

func TestEngine_WhenAskedForHelp_ShowsEveryFlagAndAnExample(t *testing.T) {
	var out, err strings.Builder
	if code := runEngine(t.Context(), engineEnv(&out, &err), []string{"-h"}); code != 0 || err.Len() > 0 {
		t.Fatalf("exit code %d, %s", code, err.String())
	}
	for _, want := range []string{"--listen ADDR", "--fault-stream-error-rate SHARE", "example:\n  kvasir engine "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	// The example works.
	_, example, _ := strings.Cut(out.String(), "example:\n  kvasir engine ")
	if _, err := parseEngine(engineEnv(io.Discard, io.Discard), strings.Fields(example)); err != nil {
		t.Error(err)
	}
}

func TestEngine_TakesTheFlagsOver(t *testing.T) {
	o, err := parseEngine(engineEnv(io.Discard, io.Discard), strings.Fields(
		"--model m --alias x,y --num-gpu-blocks 101 --max-num-seqs 7 --max-num-batched-tokens 99 --enable-chunked-prefill=false --enable-prefix-caching=false --enable-prompt-tokens-details=false"))
	if err != nil {
		t.Fatal(err)
	}
	c := o.config
	if e := c.Engine; e.NumBlocks != 100 || e.MaxModelLen != 1600 || e.MaxSeqs != 7 || e.MaxBatchedTokens != 99 || e.ChunkedPrefill || e.PrefixCaching {
		t.Errorf("%+v", e)
	}
	if strings.Join(c.Models, " ") != "m x y" || !c.HidePromptDetails {
		t.Errorf("%+v", c)
	}
}

func TestEngine_TakesAdaptersOver(t *testing.T) {
	for args, want := range map[string]engine.LoRA{
		"":                  {MaxLoRAs: 1, MaxCPULoRAs: 1, LoadFromHost: loraHostLoad, LoadFromDisk: loraDiskLoad},
		"--max-loras 4":     {MaxLoRAs: 4, MaxCPULoRAs: 4, LoadFromHost: loraHostLoad, LoadFromDisk: loraDiskLoad},
		"--max-cpu-loras 8": {MaxLoRAs: 1, MaxCPULoRAs: 8, LoadFromHost: loraHostLoad, LoadFromDisk: loraDiskLoad},
		"--max-loras 2 --emulate-lora-host-load 1ms --emulate-lora-disk-load 0s": {MaxLoRAs: 2, MaxCPULoRAs: 2, LoadFromHost: time.Millisecond},
	} {
		o, err := parseEngine(engineEnv(io.Discard, io.Discard), strings.Fields("--lora-modules sql=/loras/sql,chat "+args))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(o.config.Adapters, []emulator.Adapter{{Name: "sql", Path: "/loras/sql"}, {Name: "chat"}}) || o.config.Engine.LoRA != want {
			t.Errorf("%s: %+v, %+v, want %+v", args, o.config.Adapters, o.config.Engine.LoRA, want)
		}
	}
}

func TestEngine_AnswersUntilItsContextEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	var wg sync.WaitGroup
	var errs strings.Builder
	wg.Go(func() {
		if code := runEngine(ctx, engineEnv(write, &errs), []string{"--listen", "127.0.0.1:0", "--model", "tiny", "--speed", "100"}); code != 0 {
			t.Errorf("exit code %d, %s", code, errs.String())
		}
		write.Close()
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, base, _ := strings.Cut(strings.TrimSpace(line), " at ")
	client := &http.Client{Transport: &http.Transport{}}
	r, err := client.Post(base+"/chat/completions", "application/json",
		strings.NewReader(`{"model":"tiny","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("%s, %v", body, err)
	}
	// The address is taken.
	var out, taken strings.Builder
	address := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1")
	if code := runEngine(t.Context(), engineEnv(&out, &taken), []string{"--listen", address}); code != 1 || !strings.Contains(taken.String(), "--listen takes another address") {
		t.Errorf("exit code %d, %s", code, taken.String())
	}
	client.CloseIdleConnections()
	stop()
	wg.Wait()
}
