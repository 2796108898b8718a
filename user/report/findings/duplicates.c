/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings about memory that is there twice: weights or optimizer state that a variable holds, and
 * state that two optimizers have of the same parameters. Names and sizes are compared, contents are
 * not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "report/findings/internal.h"

/* Least duplicate that is a finding: bytes, and percent of the peak. */
#define LEAST_BYTES (UINT64_C(1) << 20)
#define LEAST_PERCENT 2
/* Part of the parameters' bytes that a variable must hold to have a copy of the model. */
#define COPY_PERCENT 90
/* Least number of different sizes that show a copy where no names do: many lists have tensors of
 * one size. */
#define LEAST_SIZES 3
/* Most tensors of one variable that are compared with the optimizer's state. */
#define HELD_MOST 8192
/* Bytes by which blocks of one tensor size may differ: the CUDA allocator may leave a remainder in
 * a large block. */
#define UNSPLIT (UINT64_C(1) << 20)

/* A block, by the part of its name that duplicates share. */
struct part {
	const char *name; /* "global checkpoint['model']['0.weight']", "AdamW exp_avg of 0.weight" */
	size_t len;	  /* length of that part: of a holder, without the last key */
	uint64_t size;
	bool matched; /* a key has this parameter's, or state's, name and size */
};

struct parts {
	struct part *all;
	size_t n;
	uint64_t bytes;
};

static void add_part(struct parts *p, const char *name, size_t len, uint64_t size)
{
	p->all[p->n++] = (struct part){ .name = name, .len = len, .size = size };
	p->bytes += size;
}

/* Orders the names of parts: the first len characters. */
static int compare_names(const struct part *a, const struct part *b)
{
	size_t len = a->len < b->len ? a->len : b->len;
	int order = memcmp(a->name, b->name, len);

	return order ? order : (a->len > b->len) - (a->len < b->len);
}

/* For qsort(): by name, then by size. */
static int by_name(const void *x, const void *y)
{
	const struct part *a = x, *b = y;
	int order = compare_names(a, b);

	return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int by_size(const void *x, const void *y)
{
	const struct part *a = x, *b = y;

	return (a->size > b->size) - (a->size < b->size);
}

/* The blocks of a device at its peak. */
struct named_blocks {
	struct parts parameters, held, states;
};

static void free_blocks(struct named_blocks *b)
{
	free(b->parameters.all);
	free(b->held.all);
	free(b->states.all);
}

/* Reads the blocks that have names, as parameters, optimizer states, and tensors that a container
 * holds. Returns 0, -ENOMEM, or -ENOENT: there was no peak. */
static int read_blocks(const struct model *m, size_t device, struct named_blocks *ret)
{
	struct live_block *all;
	size_t n;
	int err = model__live_blocks(m, device, ROWS_AT_MARK, &all, &n);

	*ret = (struct named_blocks){ .parameters.n = 0 };
	if (err)
		return err;
	ret->parameters.all = calloc(n + 1, sizeof(struct part));
	ret->held.all = calloc(n + 1, sizeof(struct part));
	ret->states.all = calloc(n + 1, sizeof(struct part));
	if (!ret->parameters.all || !ret->held.all || !ret->states.all) {
		free(all);
		free_blocks(ret);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		const struct live_block *block = &all[i];
		const struct growth_name name = { .text = block->name };

		if (!block->name || !*block->name)
			continue;
		if (block->category == CATEGORY_PARAMETER)
			add_part(&ret->parameters, block->name, strlen(block->name), block->size);
		else if (block->category == CATEGORY_OPTIMIZER_STATE && strstr(block->name, " of "))
			add_part(&ret->states, block->name, strlen(block->name), block->size);
		else if (block->category != CATEGORY_GRADIENT && growth_summary__is_holder(&name) &&
			 strchr(block->name, '['))
			add_part(&ret->held, block->name,
				 (size_t)(strrchr(block->name, '[') - block->name), block->size);
	}
	free(all);
	return 0;
}

/* True if a duplicate of this size is worth a finding. */
static bool is_worth(uint64_t bytes, const struct model_device *d)
{
	return bytes >= LEAST_BYTES && bytes >= d->peak_allocated / 100 * LEAST_PERCENT;
}

/* Adds a finding about a variable that holds a copy. len: length of the variable in held's name.
 * what: what it holds, for the text. Returns 0 or -ENOMEM. */
static int add_copy(struct judging *j, const struct model_device *d, enum finding_code code,
		    const struct part *held, size_t len, uint64_t bytes, const char *what)
{
	char holder[512], text[700];
	struct finding finding = {
		.code = code,
		.bytes = bytes,
		.whole = d->peak_allocated,
		.text = text,
		.held_by = holder,
		.sure = "estimate",
		.remedy = "`del` it once it is loaded, or keep it on the host: "
			  "torch.load(..., map_location=\"cpu\")",
	};

	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	text__clean(holder, sizeof(holder), held->name, len);
	snprintf(text, sizeof(text), "%s holds %s", holder, what);
	return findings__add(j, &finding);
}

/* ---- weights that a variable holds ---- */

/* True if blocks of these sizes may have tensors of one size: see UNSPLIT. */
static bool is_same_size(uint64_t a, uint64_t b)
{
	uint64_t apart = a > b ? a - b : b - a;

	return !apart || (apart <= UNSPLIT && apart <= a / 8);
}

/* Returns the text "0.weight" in "['0.weight']" or "['0.weight'] in main (train.py:4)"; NULL: the
 * key is no text. *text_len: its length. */
static const char *key_text(const char *key, size_t *text_len)
{
	const char *end = strstr(key, "'] in ");
	size_t len = end ? (size_t)(end - key) + 2 : strlen(key);

	if (len <= 4 || !text__starts(key, "['") || memcmp(key + len - 2, "']", 2) != 0)
		return NULL;
	*text_len = len - 4;
	return key + 2;
}

/* True for "0.weight" and the key "0.weight" or "module.0.weight". */
static bool is_key_of(const struct part *parameter, const char *key, size_t len)
{
	size_t prefix_len;

	if (len < parameter->len)
		return false;
	prefix_len = len - parameter->len;
	return !memcmp(key + prefix_len, parameter->name, parameter->len) &&
	       (!prefix_len || key[prefix_len - 1] == '.');
}

/* True if no tensor so far is the copy of this parameter, and the one with this key and size is. */
static bool is_copy_of(const struct part *parameter, const char *key, size_t len, uint64_t size)
{
	return !parameter->matched && is_same_size(parameter->size, size) &&
	       is_key_of(parameter, key, len);
}

/* Returns the bytes of the parameters that have a copy, by name and size, in the n tensors of
 * `held`. Sets part.matched of these parameters. */
static uint64_t match_keys(struct parts *parameters, const struct part *held, size_t n)
{
	uint64_t bytes = 0;

	for (size_t parameter = 0; parameter < parameters->n; parameter++)
		parameters->all[parameter].matched = false;
	for (size_t i = 0; i < n; i++) {
		size_t len, parameter = 0;
		const char *key = key_text(held[i].name + held[i].len, &len);

		if (!key)
			continue;
		while (parameter < parameters->n &&
		       !is_copy_of(&parameters->all[parameter], key, len, held[i].size))
			parameter++;
		if (parameter == parameters->n)
			continue;
		parameters->all[parameter].matched = true;
		bytes += parameters->all[parameter].size;
	}
	return bytes;
}

/* Bytes of parameters that have a tensor of the same size in the first n of held. Both are sorted
 * by size. *sizes: number of different sizes. */
static uint64_t match_sizes(const struct parts *parameters, const struct part *held, size_t n,
			    size_t *sizes)
{
	uint64_t bytes = 0, last_size = 0;
	size_t i_parameter = 0, i_held = 0;

	*sizes = 0;
	while (i_parameter < parameters->n && i_held < n) {
		uint64_t size = parameters->all[i_parameter].size;

		if (is_same_size(size, held[i_held].size)) {
			bytes += size;
			*sizes += size != last_size;
			last_size = size;
			i_parameter++;
			i_held++;
		} else if (size < held[i_held].size) {
			i_parameter++;
		} else {
			i_held++;
		}
	}
	return bytes;
}

/* Bytes of the parameters that a variable has a copy of. Its n tensors are sorted by size. The
 * names of a large dictionary's keys are not known: then the number and the sizes of its tensors
 * count. */
static uint64_t match_variable(struct parts *parameters, const struct part *held, size_t n)
{
	uint64_t bytes = match_keys(parameters, held, n < 64 ? n : 64);
	size_t sizes;

	if (bytes || n < parameters->n - parameters->n / 10 || n > 2 * parameters->n)
		return bytes;
	bytes = match_sizes(parameters, held, n, &sizes);
	return sizes < LEAST_SIZES ? 0 : bytes;
}

/* Adds a finding for each variable that has a copy of the weights. Returns 0 or -ENOMEM. */
static int add_held_weights(struct judging *j, const struct model_device *d, struct named_blocks *b)
{
	/* Tensors are compared with all parameters, so variables that are too small are left out.
	 * By is_same_size() a copy has at least 7/8 of its parameter's bytes. */
	const uint64_t least = b->parameters.bytes / 100 * (COPY_PERCENT * 7 / 8);
	struct parts *held = &b->held;
	int err = 0;

	if (b->parameters.n < 2)
		return 0;
	qsort(b->parameters.all, b->parameters.n, sizeof(*b->parameters.all), by_size);
	qsort(held->all, held->n, sizeof(*held->all), by_name);
	for (size_t first = 0, end; first < held->n && !err; first = end) {
		const struct part *variable = &held->all[first];
		uint64_t bytes = 0;
		char what[80];

		for (end = first; end < held->n && !compare_names(&held->all[end], variable); end++)
			bytes += held->all[end].size;
		if (bytes < least)
			continue;
		bytes = match_variable(&b->parameters, variable, end - first);
		snprintf(what, sizeof(what), "%zu tensors with the sizes of the model's weights",
			 end - first);
		if (bytes >= b->parameters.bytes / 100 * COPY_PERCENT && is_worth(bytes, d))
			err = add_copy(j, d, FINDING_WEIGHTS_HELD, variable, variable->len, bytes,
				       what);
	}
	return err;
}

/* ---- state that two optimizers have ---- */

/* Bytes of all blocks but the first of each name. p is sorted by name. *names: number of names that
 * several blocks have. */
static uint64_t count_repeated(const struct parts *p, size_t *names)
{
	uint64_t bytes = 0;
	bool again = false;

	*names = 0;
	for (size_t i = 1; i < p->n; i++) {
		bool same = !compare_names(&p->all[i - 1], &p->all[i]);

		*names += same && !again;
		bytes += same ? p->all[i].size : 0;
		again = same;
	}
	return bytes;
}

/* Adds a finding if tensors of optimizers' states have the same names. Several models may have
 * parameters of the same names; then it is not known whose state is there twice. Returns 0 or
 * -ENOMEM. */
static int add_states(struct judging *j, const struct model_device *d, struct named_blocks *b)
{
	char text[256], optimizer[64];
	size_t repeated_states, repeated_parameters;
	struct finding finding = {
		.code = FINDING_OPTIMIZERS,
		.whole = d->peak_allocated,
		.text = text,
		.sure = "exact",
		.remedy = "drop the optimizer that is not used any more, with its scheduler, and "
			  "step the other",
	};

	qsort(b->parameters.all, b->parameters.n, sizeof(*b->parameters.all), by_name);
	qsort(b->states.all, b->states.n, sizeof(*b->states.all), by_name);
	count_repeated(&b->parameters, &repeated_parameters);
	finding.bytes = count_repeated(&b->states, &repeated_states);
	if (repeated_parameters || !repeated_states || !is_worth(finding.bytes, d) ||
	    finding.bytes < b->states.bytes / 4)
		return 0;
	text__clean(optimizer, sizeof(optimizer), b->states.all[0].name,
		    strcspn(b->states.all[0].name, " "));
	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	snprintf(text, sizeof(text),
		 "two optimizers (%s) have state of the same parameters: %zu tensors are there "
		 "again",
		 optimizer, repeated_states);
	return findings__add(j, &finding);
}

/* ---- state that a variable holds ---- */

/* Length of the variable in a holder's name: "global kept[0]['optimizer']['state'][0]" is "global
 * kept[0]". */
static size_t variable_len(const struct part *held)
{
	const char *key = memchr(held->name, '\'', held->len);

	return key && key > held->name && key[-1] == '[' ? (size_t)(key - held->name) - 1
							 : held->len;
}

/* True if the optimizer's state of some parameter has this key and size. The key is
 * "['exp_avg']" and the state's name "AdamW exp_avg of 0.weight". Marks that state, so that it
 * has one copy only. */
static bool take_state(struct parts *states, const char *key, uint64_t size)
{
	size_t len;
	const char *text = key_text(key, &len);

	for (size_t i = 0; i < states->n && text; i++) {
		struct part *state = &states->all[i];
		const char *name = memchr(state->name, ' ', state->len);

		if (state->matched || !name || !is_same_size(state->size, size) ||
		    strncmp(name + 1, text, len) != 0 || name[len + 1] != ' ')
			continue;
		state->matched = true;
		return true;
	}
	return false;
}

/* True if the tensor is held by the variable, the first len characters of variable's name. */
static bool is_of_variable(const struct part *held, const struct part *variable, size_t len)
{
	return variable_len(held) == len && !memcmp(held->name, variable->name, len);
}

/* Bytes of n tensors of a variable that are copies of the optimizer's state. After a
 * holder's name, of .len bytes, comes the last key. */
static uint64_t match_states(struct parts *states, const struct part *held, size_t n)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < states->n; i++)
		states->all[i].matched = false;
	for (size_t i = 0; i < n; i++)
		if (take_state(states, held[i].name + held[i].len, held[i].size))
			bytes += held[i].size;
	return bytes;
}

/* Adds a finding for each variable that has a copy of the optimizer's state. Returns 0 or -ENOMEM. */
static int add_held_states(struct judging *j, const struct model_device *d, struct named_blocks *b)
{
	const uint64_t least = b->states.bytes / 100 * (COPY_PERCENT * 7 / 8);
	struct parts *held = &b->held;
	int err = 0;

	if (!b->states.n)
		return 0;
	qsort(held->all, held->n, sizeof(*held->all), by_name);
	for (size_t first = 0, end; first < held->n && !err; first = end) {
		const struct part *variable = &held->all[first];
		size_t len = variable_len(variable);
		uint64_t bytes = 0;

		for (end = first; end < held->n && is_of_variable(&held->all[end], variable, len);
		     end++)
			bytes += held->all[end].size;
		if (bytes < least || end - first > HELD_MOST)
			continue;
		bytes = match_states(&b->states, variable, end - first);
		if (bytes >= b->states.bytes / 100 * COPY_PERCENT && is_worth(bytes, d))
			err = add_copy(j, d, FINDING_STATE_HELD, variable, len, bytes,
				       "tensors with the names and sizes of the optimizer's state");
	}
	return err;
}

int duplicates__add(struct judging *j, size_t device, const struct model_device *d)
{
	struct named_blocks blocks;
	int err = read_blocks(j->source->model, device, &blocks);

	if (err)
		return err == -ENOENT ? 0 : err;
	err = add_held_weights(j, d, &blocks);
	if (err)
		goto out;
	err = add_held_states(j, d, &blocks);
	if (err)
		goto out;
	err = add_states(j, d, &blocks);
out:
	free_blocks(&blocks);
	return err;
}
