package main

import (
	"flag"
	"time"

	"kvasir/engine"
)

// What loading an adapter takes unless a flag says it. An adapter of rank 16 over all
// projections of a model of 8B parameters has 84 MB: a few milliseconds over PCIe, and as much
// again for putting its parts where the kernels expect them; from a disk or a network share,
// with Python's reading of the file, about half a second. Chosen, not measured.
const (
	loraHostLoad = 10 * time.Millisecond
	loraDiskLoad = 500 * time.Millisecond
)

// loraFlags defines the flags of an engine's adapters; those of the load times have the
// names given, for vLLM has none.
func loraFlags(f *flag.FlagSet, l *engine.LoRA, host, disk string) {
	f.IntVar(&l.MaxLoRAs, "max-loras", 0, "")
	f.IntVar(&l.MaxCPULoRAs, "max-cpu-loras", 0, "")
	f.DurationVar(&l.LoadFromHost, host, loraHostLoad, "")
	f.DurationVar(&l.LoadFromDisk, disk, loraDiskLoad, "")
}

// loraOf returns what the flags say. Without slots the load times say nothing, and the host
// holds as many adapters as there are slots, as vLLM's does, unless it is said.
func loraOf(l engine.LoRA) engine.LoRA {
	if l.MaxLoRAs == 0 && l.MaxCPULoRAs == 0 {
		return engine.LoRA{}
	}
	if l.MaxCPULoRAs == 0 {
		l.MaxCPULoRAs = l.MaxLoRAs
	}
	return l
}
