# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Models of Hugging Face transformers from random weights: GPT-2 in four sizes, BERT, a Llama of 7 billion parameters."""
import torch
import transformers

import common

GPT2 = {"124M": (12, 12, 768), "355M": (24, 16, 1024), "774M": (36, 20, 1280), "1.5B": (48, 25, 1600)}
# The Llama of 6.74 billion; "tiny": the same with fewer and smaller layers, for tests.
LLAMA = {"7B": (32, 32, 4096, 11008, 32000), "1B": (16, 32, 2048, 5632, 32000), "tiny": (2, 4, 256, 688, 1000)}
BERT = {"base": (12, 12, 768), "large": (24, 16, 1024)}


def gpt2(args):
    layers, heads, width = GPT2[args.size or "124M"]
    config = transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width, use_cache=False)
    return transformers.GPT2LMHeadModel, config


def llama(args):
    layers, heads, width, inner, vocab = LLAMA[args.size or "7B"]
    config = transformers.LlamaConfig(num_hidden_layers=layers, num_attention_heads=heads, hidden_size=width, intermediate_size=inner,
                                      vocab_size=vocab, max_position_embeddings=4096, use_cache=False)
    return transformers.LlamaForCausalLM, config


def bert(args):
    layers, heads, width = BERT[args.size or "base"]
    config = transformers.BertConfig(num_hidden_layers=layers, num_attention_heads=heads, hidden_size=width, intermediate_size=4 * width)
    return transformers.BertForMaskedLM, config


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert}


def main():
    p = common.options(__doc__, batch=4, length=1024)
    p.add_argument("model", choices=sorted(MODELS))
    p.add_argument("--size", help="124M, 355M, 774M, 1.5B; base, large; 7B, 1B, tiny")
    p.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of the weights")
    args = p.parse_args()
    of, config = MODELS[args.model](args)
    torch.set_default_dtype(torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    with torch.device("cuda"):
        model = of(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    if args.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})

    def loss_of(m, ids):
        return m(input_ids=ids, labels=ids).loss

    common.train(args, model, lambda: common.tokens(args, args.length, config.vocab_size), loss_of)
    common.finish(model, transformers=transformers.__version__)


if __name__ == "__main__":
    main()
