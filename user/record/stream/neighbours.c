/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/neighbours.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_FIRST (NEIGHBOURS_FACTS / 2)
#define WORD 256 /* bytes of a text, at most */
#define KEY 32

/* Name of the fact for the number-th failure: the last ones take turns. */
static char *key_of(char key[KEY], uint64_t number, unsigned device)
{
	if (number == NEIGHBOURS_AT_END) {
		snprintf(key, KEY, "neighbours.end.%u", device);
		return key;
	}
	if (number >= KEPT_FIRST)
		number = KEPT_FIRST + (number - KEPT_FIRST) % (NEIGHBOURS_FACTS - KEPT_FIRST);
	snprintf(key, KEY, "neighbours.%u", (unsigned)number);
	return key;
}

static void put_number(FILE *out, bool known, uint64_t n)
{
	if (known)
		fprintf(out, " %" PRIu64, n);
	else
		fputs(" ?", out);
}

/* Writes a tab and a text without tabs and ends of lines. */
static void put_text(FILE *out, const char *text)
{
	fputc('\t', out);
	for (size_t i = 0; i < WORD && text[i]; i++)
		fputc((unsigned char)text[i] < ' ' ? '?' : text[i], out);
}

int neighbours__add(struct facts *f, uint64_t number, uint64_t time, unsigned device,
		    const struct neighbours *v)
{
	char key[KEY], *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int err = -ENOMEM;

	if (!out)
		return -ENOMEM;
	fprintf(out, "%" PRIu64 " %u %" PRIu64 " %" PRIu64, time, device, v->read, v->all);
	for (size_t i = 0; i < v->n; i++) {
		fprintf(out, "\n%" PRIu32, v->v[i].pid);
		put_number(out, v->v[i].bytes_known, v->v[i].bytes);
		put_number(out, v->v[i].uid_known, v->v[i].uid);
		put_text(out, v->v[i].user);
		put_text(out, v->v[i].command);
		put_text(out, v->v[i].container);
	}
	if (!fclose(out))
		err = facts__set(f, key_of(key, number, device), text);
	free(text);
	return err;
}

/* Parses " N" or " ?". False: it is neither. */
static bool parse_number(const char **at, uint64_t most, bool *known, uint64_t *ret)
{
	*ret = 0;
	if (*(*at)++ != ' ')
		return false;
	*known = **at != '?';
	if (!*known) {
		(*at)++;
		return true;
	}
	return facts__digits(at, ret) && *ret <= most;
}

/* Parses a line of a process, which it cuts into texts. */
static bool parse_process(char *line, struct neighbour *ret)
{
	const char *at = strsep(&line, "\t");
	uint64_t pid, uid;

	*ret = (struct neighbour){ 0 };
	ret->user = strsep(&line, "\t") ?: "";
	ret->command = strsep(&line, "\t") ?: "";
	ret->container = strsep(&line, "\t") ?: "";
	if (!facts__digits(&at, &pid) || pid > INT32_MAX ||
	    !parse_number(&at, STREAM_MOST, &ret->bytes_known, &ret->bytes) ||
	    !parse_number(&at, UINT32_MAX, &ret->uid_known, &uid) || *at)
		return false;
	ret->pid = (uint32_t)pid;
	ret->uid = (uint32_t)uid;
	return true;
}

/* Parses the first line. False: it is of another device or damaged. */
static bool parse_head(const char *at, struct device device, uint64_t *time, struct neighbours *ret)
{
	uint64_t index;

	return device.type == DEVICE_CUDA && at && facts__digits(&at, time) && *at++ == ' ' &&
	       facts__digits(&at, &index) && index == device.index && *at++ == ' ' &&
	       facts__digits(&at, &ret->read) && *at++ == ' ' && facts__digits(&at, &ret->all) &&
	       (!*at || *at == '\n');
}

/* Reads the lines of the processes. */
static bool read_value(const char *value, struct neighbours *ret)
{
	char *at = strdup(value), *line;

	ret->text = at;
	if (!at)
		return false;
	strsep(&at, "\n");
	while (ret->n < NEIGHBOURS_MAX && (line = strsep(&at, "\n")))
		ret->n += parse_process(line, &ret->v[ret->n]);
	if (ret->all < ret->n)
		ret->all = ret->n;
	return true;
}

bool neighbours__read(const struct facts *f, uint64_t time, struct device device,
		      struct neighbours *ret)
{
	const char *value;
	char key[KEY];
	uint64_t of;

	for (uint64_t i = 0; i < NEIGHBOURS_FACTS; i++) {
		*ret = (struct neighbours){ 0 };
		value = facts__get(f, key_of(key, i, 0));
		if (parse_head(value, device, &of, ret) && of == time)
			return read_value(value, ret);
	}
	*ret = (struct neighbours){ 0 };
	return false;
}

bool neighbours__read_end(const struct facts *f, struct device device, struct neighbours *ret)
{
	char key[KEY];
	const char *value = facts__get(f, key_of(key, NEIGHBOURS_AT_END, device.index));
	uint64_t of;

	*ret = (struct neighbours){ 0 };
	if (parse_head(value, device, &of, ret))
		return read_value(value, ret);
	*ret = (struct neighbours){ 0 };
	return false;
}

void neighbours__free(struct neighbours *n)
{
	free(n->text);
}
