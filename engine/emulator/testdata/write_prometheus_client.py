# Writes prometheus_client.txt (argument: busy) with prometheus_client 0.26: what the library
# makes of vLLM's families with two engines and some values.
import sys
import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Counter, Histogram, generate_latest
import prometheus_client.metrics as m
busy = sys.argv[1] == 'busy'
ranks = ['0','1'] if busy else ['0']
m.time.time = lambda: 1796002998.5741081 if busy else 946684800.0
R = CollectorRegistry()
L = ['model_name','engine']
MODEL='a"b\\c\nd' if busy else 'tiny'
MAXLEN=100 if busy else 8192
def each(metric, extra=()):
    out={}
    for x in (extra or [None]):
        for r in ranks:
            out[(x,r)] = metric.labels(MODEL, r, *( [x] if x else []))
    return out
def g(n,d,extra=None,vals=()): return each(Gauge(n,d,L+([extra] if extra else []),registry=R), vals)
def c(n,d,extra=None,vals=()): return each(Counter(n,d,L+([extra] if extra else []),registry=R), vals)
def h(n,d,b): return each(Histogram(n,d,L,buckets=b,registry=R))
def b125(mx):
    e,o=0,[]
    while True:
        for k in (1,2,5):
            v=k*10**e
            if v>mx: return o
            o.append(v)
        e+=1
A=[.001,.005,.01,.02,.04,.06,.08,.1,.25,.5,.75,1,2.5,5,7.5,10,20,40,80,160,640,2560]
B=[.01,.025,.05,.075,.1,.15,.2,.3,.4,.5,.75,1,2.5,5,7.5,10,20,40,80]
C=[.3,.5,.8,1,1.5,2,2.5,5,10,15,20,30,40,50,60,120,240,480,960,1920,7680]
D=b125(MAXLEN)
run=g('vllm:num_requests_running','Number of requests in model execution batches.')
wait=g('vllm:num_requests_waiting','Number of requests waiting to be processed.')
by=g('vllm:num_requests_waiting_by_reason',"Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",'reason',['capacity','deferred'])
sl=g('vllm:engine_sleep_state','Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.','sleep_state',['awake','weights_offloaded','discard_all'])
for r in ranks: sl[('awake',r)].set(1)
kv=g('vllm:kv_cache_usage_perc','KV-cache usage. 1 means 100 percent usage.')
q=c('vllm:prefix_cache_queries','Prefix cache queries, in terms of number of queried tokens.')
hit=c('vllm:prefix_cache_hits','Prefix cache hits, in terms of number of cached tokens.')
c('vllm:external_prefix_cache_queries','External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.')
c('vllm:external_prefix_cache_hits','External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.')
c('vllm:mm_cache_queries','Multi-modal cache queries, in terms of number of queried items.')
c('vllm:mm_cache_hits','Multi-modal cache hits, in terms of number of cached items.')
pre=c('vllm:num_preemptions','Cumulative number of preemption from the engine.')
pt=c('vllm:prompt_tokens','Number of prefill tokens processed.')
src=c('vllm:prompt_tokens_by_source','Number of prompt tokens by source.','source',['local_compute','local_cache_hit','external_kv_transfer'])
pc=c('vllm:prompt_tokens_cached','Number of cached prompt tokens (local + external).')
gt=c('vllm:generation_tokens','Number of generation tokens processed.')
ok=c('vllm:request_success','Count of successfully processed requests.','finished_reason',['stop','length','abort','error','repetition'])
h('vllm:request_prompt_tokens','Number of prefill tokens processed.',D)
h('vllm:request_generation_tokens','Number of generation tokens processed.',D)
it=h('vllm:iteration_tokens_total','Histogram of number of tokens per engine_step.',[1,8,16,32,64,128,256,512,1024,2048,4096,8192,16384])
h('vllm:request_max_num_generation_tokens','Histogram of maximum number of requested generation tokens.',D)
h('vllm:request_params_n','Histogram of the n request parameter.',[1,2,5,10,20])
h('vllm:request_params_max_tokens','Histogram of the max_tokens request parameter.',D)
tt=h('vllm:time_to_first_token_seconds','Histogram of time to first token in seconds.',A)
h('vllm:inter_token_latency_seconds','Histogram of inter-token latency in seconds.',B)
h('vllm:request_time_per_output_token_seconds','Histogram of time_per_output_token_seconds per request.',B)
for n,w in (('e2e_request_latency','e2e request latency in seconds.'),):
    h('vllm:e2e_request_latency_seconds','Histogram of e2e request latency in seconds.',C)
for n,w in (('queue','WAITING'),('inference','RUNNING'),('prefill','PREFILL'),('decode','DECODE')):
    h(f'vllm:request_{n}_time_seconds',f'Histogram of time spent in {w} phase for request.',C)
h('vllm:request_prefill_kv_computed_tokens','Histogram of new KV tokens computed during prefill (excluding cached tokens).',D)
if busy:
    run[(None,'0')].set(3); wait[(None,'1')].set(7); by[('capacity','1')].set(7); kv[(None,'0')].set(0.1+0.2)
    sl[('awake','1')].set(0); sl[('discard_all','1')].set(1); sl[('awake','0')].set(0); sl[('discard_all','0')].set(1)
    q[(None,'0')].inc(1234567); hit[(None,'1')].inc(1000000); pre[(None,'0')].inc(2)
    pt[(None,'0')].inc(999999); src[('local_compute','0')].inc(999999-16); src[('local_cache_hit','0')].inc(16); pc[(None,'0')].inc(16)
    gt[(None,'1')].inc(123456789012)
    ok[('stop','0')].inc(5); ok[('abort','1')].inc(1)
    for v in (0.001,0.3,0.30000001,3000): tt[(None,'0')].observe(v)
    for v in (1,9,20000): it[(None,'1')].observe(v)
sys.stdout.buffer.write(generate_latest(R))
