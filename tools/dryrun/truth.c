// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "truth.h"
#include "dryrun.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINE 4096
#define MAX_SOURCE (4 << 20)

/* Reads a line of source without the contents of string literals. False: no such line. */
static bool read_source(const struct place *place, char line[MAX_LINE])
{
	int fd = open(place->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *f;
	int at = 0;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > MAX_SOURCE ||
	    !(f = fdopen(fd, "r"))) {
		close(fd);
		return false;
	}
	while (at < place->line && fgets(line, MAX_LINE, f))
		at += strchr(line, '\n') != NULL || at + 1 == place->line;
	fclose(f);
	line[strcspn(line, "\"'#\n")] = '\0';
	return at == place->line;
}

/* True for "not", except in "is not" and "not in". */
static bool is_negated(const char *text)
{
	const char *at = text;

	while ((at = strstr(at, "not"))) {
		bool word = (isspace((unsigned char)at[-1]) || at[-1] == '(') &&
			    (isspace((unsigned char)at[3]) || at[3] == '(');

		if (word && strncmp(at, "not in ", 7) &&
		    (at - text < 3 || strncmp(at - 3, "is ", 3)))
			return true;
		at += 3;
	}
	return false;
}

/* Position after the bracket that closes the one at `at`, or the text's end. */
static const char *after_bracket(const char *at)
{
	int depth = 0;

	for (; *at; at++) {
		depth += strchr("([{", *at) != NULL;
		depth -= strchr(")]}", *at) != NULL;
		if (!depth)
			return at + 1;
	}
	return at;
}

/* End of the operand that begins at `at`: a name with attributes, calls and indices, or a
 * parenthesis and calls of it. */
static const char *operand_end(const char *at)
{
	at += strspn(at, " ");
	while (*at) {
		if (*at == '(' || *at == '[')
			at = after_bracket(at);
		else if (isalnum((unsigned char)*at) || *at == '_' || *at == '.')
			at++;
		else
			break;
	}
	return at;
}

/* True if the operand at `at` is inverted before the host reads it. `not` inverts it afterwards. */
static bool is_inverted(const char *text, const char *at)
{
	static const char call[] = "logical_not";
	const char *end;
	bool inverted = strstr(at, ".logical_not()") != NULL;

	for (const char *p = text; p < at; p++) {
		end = *p == '~' ? operand_end(p + 1)
		      : !strncmp(p, "logical_not(", sizeof(call))
			      ? after_bracket(p + sizeof(call) - 1)
			      : p;
		inverted ^= at < end;
	}
	return inverted;
}

/* The result of a check for finite numbers on valid data. False: also for another expression. */
static bool finds_finite(const char *text)
{
	const char *finite = strstr(text, "isfinite("), *nan = strstr(text, "isnan("),
		   *inf = strstr(text, "isinf(");

	if (finite)
		return !is_inverted(text, finite);
	return (nan || inf) && is_inverted(text, nan ?: inf);
}

/* The last part of a qualified name. */
static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/*
 * Guesses one truth value: assertions and argument checks hold, and zeros are finite. `not` inverts
 * the result, as in `assert not ...`.
 */
static bool is_true(const struct operation *op, const struct python_read *read)
{
	const char *asks = last_part(read->inner.function), *at;
	char line[MAX_LINE] = "";

	if (op->checks || strstr(read->inner.file, "/torch/distributions/"))
		return true;
	/* A mask that hides nothing, and rows with one sequence each: these decide which attention
	 * runs. */
	if (strstr(read->inner.file, "/transformers/") &&
	    (!strcmp(asks, "_ignore_causal_mask_sdpa") ||
	     !strcmp(asks, "find_packed_sequence_indices")))
		return true;
	if (!read_source(&read->inner, line))
		return false;
	at = line + strspn(line, " \t");
	if (!strncmp(at, "assert", 6) && (isspace((unsigned char)at[6]) || at[6] == '('))
		return !is_negated(at);
	return finds_finite(at);
}

/*
 * transformers' generate() asks the device after each token whether all sequences have ended. Here
 * none ends early: they end at their greatest length, which Python knows. False: another place.
 */
static bool generation_ends(bool *answer)
{
	static const char *const loops[] = { "_sample", "_assisted_decoding" };
	int64_t length, most;

	for (size_t i = 0; i < sizeof(loops) / sizeof(*loops); i++)
		if (python__local(loops[i], "input_ids", "shape", 1, &length) &&
		    python__local(loops[i], "stopping_criteria", "max_length", -1, &most)) {
			*answer = length >= most;
			return true;
		}
	/* This one asks whether sequences are left. */
	if (!python__local("_beam_search", "cur_len", NULL, -1, &length) ||
	    !python__local("_beam_search", "max_length", NULL, -1, &most))
		return false;
	*answer = length < most;
	return true;
}

bool truth__wanted(size_t size)
{
	return size == 1 || (dryrun__config()->values && size <= 8);
}

void truth__of(struct truth *truth, const struct operation *op, const struct python_read *read,
	       size_t size)
{
	const struct place *place = &read->user;
	const char *values = dryrun__config()->values;
	struct said said;
	bool ends;

	*truth = (struct truth){ 0 };
	if (size > sizeof(truth->bytes) || read->purpose != READ_FOR_USE)
		return;
	if (values__find(values, place, &said) || values__find(values, &read->inner, &said)) {
		if (values__encode(truth, &said, size))
			dryrun__log("assumed value_at %s:%d %g", place->file, place->line,
				    said.number);
		else
			dryrun__unmodelled("MEMTRACE_DRYRUN_VALUES: a number with a point in 1 or "
					   "2 bytes, or a number in 3, 5, 6 or 7");
	} else if (size == 1 && is_true(op, read)) {
		*truth = (struct truth){ .size = 1, .bytes = { 1 }, .from = 1 };
		dryrun__log("assumed true_at %s:%d", place->file, place->line);
	} else if (size == 1 && strstr(read->inner.file, "/transformers/generation/") &&
		   generation_ends(&ends)) {
		truth->generation = true;
		dryrun__log("assumed greatest_length_at %s:%d", place->file, place->line);
	}
}

void truth__put(const struct truth *truth, uint64_t count, void *to, size_t size)
{
	bool ends;

	if (truth->generation && size == 1)
		*(unsigned char *)to = generation_ends(&ends) && ends;
	else if (truth->size && truth->size == size && count >= truth->from &&
		 !(truth->every && count % truth->every))
		memcpy(to, truth->bytes, size);
}

static __thread struct {
	unsigned int reads;
	uint64_t number;
} next;

void truth__set_next(uint64_t number, unsigned int reads)
{
	next.reads = reads;
	next.number = number;
}

bool truth__take_next(void *to, size_t size)
{
	if (!next.reads || size != sizeof(next.number))
		return false;
	next.reads--;
	memcpy(to, &next.number, size);
	return true;
}
