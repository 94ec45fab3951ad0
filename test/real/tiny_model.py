"""Writes a small llama model with random weights as a GGUF file: tiny_model.py OUT.gguf.

It stands in for a real model where only the server matters. Any text can be its prompt, and
it answers with random bytes, so a good part of an answer is no valid UTF-8. The weights are
drawn from a fixed seed: the file is the same wherever it is made.
"""

import sys

import gguf
import numpy as np

HIDDEN, FFN, LAYERS, HEADS, CONTEXT = 64, 128, 2, 2, 8192
RESERVED, VOCABULARY = 16, 320

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def byte_symbols():
    """The printable characters that stand for the 256 bytes in GPT-2's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols, spare = [], 0x100
    for byte in range(256):
        if byte in printable:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(spare))
            spare += 1
    return symbols


def vocabulary():
    """Tokens, their types, and the merges. A merge's result must be a token, or its text is lost."""
    special = ["<unk>", "<s>", "</s>"] + [f"<reserved {n}>" for n in range(3, RESERVED)]
    symbols = byte_symbols()
    space_t = symbols[ord(" ")] + "t"
    tokens = special + symbols + [space_t]
    filler = [f"<filler {n}>" for n in range(len(tokens), VOCABULARY)]
    types = (
        [gguf.TokenType.UNKNOWN]
        + [gguf.TokenType.CONTROL] * (RESERVED - 1)
        + [gguf.TokenType.NORMAL] * (len(tokens) - RESERVED)
        + [gguf.TokenType.UNUSED] * len(filler)
    )
    return tokens + filler, types, [f"{symbols[ord(' ')]} t"]


def write(path):
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("tiny")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(FFN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(VOCABULARY)

    tokens, types, merges = vocabulary()
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(True)
    out.add_chat_template(CHAT_TEMPLATE)

    random = np.random.default_rng(1)

    def matrix(name, rows, columns):
        out.add_tensor(name, random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32))

    def ones(name):
        out.add_tensor(name, np.ones(HIDDEN, np.float32))

    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        ones(prefix + "attn_norm.weight")
        for name in "attn_q", "attn_k", "attn_v", "attn_output":
            matrix(f"{prefix}{name}.weight", HIDDEN, HIDDEN)
        ones(prefix + "ffn_norm.weight")
        matrix(prefix + "ffn_gate.weight", FFN, HIDDEN)
        matrix(prefix + "ffn_up.weight", FFN, HIDDEN)
        matrix(prefix + "ffn_down.weight", HIDDEN, FFN)
    ones("output_norm.weight")
    matrix("output.weight", VOCABULARY, HIDDEN)

    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tiny_model.py OUT.gguf")
    write(sys.argv[1])
