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

/* The text of a line of a file, without what is quoted; false: there is none. */
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

/* "not", but for "is not" and "not in". */
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

/* Behind the parenthesis or bracket that belongs to the one at `at`, or the text's end. */
static const char *closed(const char *at)
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

/* Where the operand ends that begins at `at`: a name with its parts, calls and indices, or what is
 * in parentheses, and calls of that. */
static const char *operand_end(const char *at)
{
	at += strspn(at, " ");
	while (*at) {
		if (*at == '(' || *at == '[')
			at = closed(at);
		else if (isalnum((unsigned char)*at) || *at == '_' || *at == '.')
			at++;
		else
			break;
	}
	return at;
}

/* Is what stands at `at` turned round before the host reads it? By a `not` it is after that. */
static bool is_inverted(const char *text, const char *at)
{
	static const char call[] = "logical_not";
	const char *end;
	bool inverted = strstr(at, ".logical_not()") != NULL;

	for (const char *p = text; p < at; p++) {
		end = *p == '~'					  ? operand_end(p + 1)
		      : !strncmp(p, "logical_not(", sizeof(call)) ? closed(p + sizeof(call) - 1)
								  : p;
		inverted ^= at < end;
	}
	return inverted;
}

/* What a check for finite numbers finds of healthy ones; false, too, where it is none. */
static bool finds_finite(const char *text)
{
	const char *finite = strstr(text, "isfinite("), *nan = strstr(text, "isnan("),
		   *inf = strstr(text, "isinf(");

	if (finite)
		return !is_inverted(text, finite);
	return (nan || inf) && is_inverted(text, nan ?: inf);
}

/* Of a name with its classes before it. */
static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/*
 * One truth value. An assertion is taken to hold, a check of arguments too, and what is looked at
 * for being finite is so: zeros are. `not` turns it round, as in `assert not ...`.
 */
static bool is_true(const struct operation *op, const struct python_read *read)
{
	const char *asks = last_part(read->inner.function), *at;
	char line[MAX_LINE] = "";

	if (op->checks || strstr(read->inner.file, "/torch/distributions/"))
		return true;
	/* Whether a mask leaves out nothing, and a row is one sequence: that decides what attention
	 * is done with. */
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

bool truth__wanted(size_t size)
{
	return size == 1 || (dryrun__config()->values && size <= 8);
}

void truth__of(struct truth *truth, const struct operation *op, const struct python_read *read,
	       size_t size)
{
	const struct place *place = &read->user;
	struct said said;

	*truth = (struct truth){ 0 };
	if (size > sizeof(truth->bytes) || read->purpose != READ_FOR_USE)
		return;
	if (values__find(place, &said) || values__find(&read->inner, &said)) {
		if (values__encode(truth, &said, size))
			dryrun__log("assumed value_at %s:%d %g", place->file, place->line,
				    said.number);
		else
			dryrun__unmodelled("MEMTRACE_DRYRUN_VALUES: a number with a point in 1 or "
					   "2 bytes, or a number in 3, 5, 6 or 7");
	} else if (size == 1 && is_true(op, read)) {
		*truth = (struct truth){ 1, { 1 }, 1 };
		dryrun__log("assumed true_at %s:%d", place->file, place->line);
	}
}

void truth__put(const struct truth *truth, uint64_t count, void *to, size_t size)
{
	if (truth->size && truth->size == size && count >= truth->from)
		memcpy(to, truth->bytes, size);
}
