# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Shared by jobs on text: a tokenizer made here, sentences, and the callback that ends a step of the Trainer of transformers."""
import zoo
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback

WORDS = 500


def tokenizer():
    words = {w: i for i, w in enumerate(["<pad>", "<eos>", "<unk>", *("w%d" % i for i in range(WORDS - 3))])}
    own = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", model_max_length=64)


def sentence(i, words):
    return " ".join("w%d" % ((7 * i + j) % (WORDS - 3)) for j in range(words))


class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = not zoo.step()
