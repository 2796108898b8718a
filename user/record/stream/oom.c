/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/oom.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD 256 /* bytes of a text, at most */
#define KEY 32

/* Name of the fact for the number-th failure: the last ones take turns. */
static char *key_of(char key[KEY], const char *name, uint64_t number)
{
	const unsigned first = OOM_FACTS / 2;

	if (number >= first)
		number = first + (number - first) % (OOM_FACTS - first);
	snprintf(key, KEY, "%s.%u", name, (unsigned)number);
	return key;
}

/* Writes a tab and a text without tabs and ends of lines. A long path loses its beginning. */
static void put_text(FILE *out, const char *text, bool path)
{
	size_t len = strlen(text);

	if (path && len > WORD)
		text += len - WORD;
	fputc('\t', out);
	for (size_t i = 0; i < WORD && text[i]; i++)
		fputc((unsigned char)text[i] < ' ' ? '?' : text[i], out);
}

static void put_tensor(FILE *out, const struct oom_tensor *t)
{
	fprintf(out, "\n%" PRIu32 " %" PRIu32 " %" PRIx64 " %" PRIu64 " %" PRIu64 " %u %u %u ",
		t->depth, t->line, t->impl, t->bytes, t->storage, t->device.type, t->device.index,
		t->ndim);
	if (!t->sized || !t->ndim)
		fputc(t->sized ? '-' : '?', out);
	for (size_t i = 0; t->sized && i < t->ndim && i < OOM_DIMS; i++)
		fprintf(out, "%s%" PRIu64, i ? "," : "", t->shape[i]);
	put_text(out, t->dtype, /*path=*/false);
	put_text(out, t->name, /*path=*/false);
	put_text(out, t->func, /*path=*/false);
	put_text(out, t->file, /*path=*/true);
}

int oom__add(struct facts *f, uint64_t number, uint64_t time, const struct oom_tensor *v, size_t n)
{
	char key[KEY], *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int err = -ENOMEM;

	if (!out)
		return -ENOMEM;
	fprintf(out, "%" PRIu64, time);
	for (size_t i = 0; i < n && i < OOM_TENSORS; i++)
		put_tensor(out, &v[i]);
	if (!fclose(out))
		err = facts__set(f, key_of(key, "oom", number), text);
	free(text);
	return err;
}

/* Parses the sizes at *at. False: they are no sizes. */
static bool parse_sizes(const char *at, struct oom_tensor *ret)
{
	size_t n = ret->ndim < OOM_DIMS ? ret->ndim : OOM_DIMS;

	ret->sized = *at != '?';
	if (!ret->sized || !n)
		return *at == '?' || *at == '-';
	for (size_t i = 0; i < n; i++, at++) {
		if (!facts__digits(&at, &ret->shape[i]))
			return false;
		if (*at != ',')
			return i == n - 1 && !*at;
	}
	return false;
}

/* Parses a line of a tensor, which it cuts into texts. */
static bool parse_tensor(char *line, struct oom_tensor *ret)
{
	unsigned type, index, ndim;
	char *word[5];
	int len = 0;

	for (size_t i = 0; i < 5; i++)
		word[i] = strsep(&line, "\t") ?: (char *)"";
	*ret = (struct oom_tensor){
		.dtype = word[1], .name = word[2], .func = word[3], .file = word[4]
	};
	if (sscanf(word[0],
		   "%" SCNu32 " %" SCNu32 " %" SCNx64 " %" SCNu64 " %" SCNu64 " %u %u %u %n",
		   &ret->depth, &ret->line, &ret->impl, &ret->bytes, &ret->storage, &type, &index,
		   &ndim, &len) != 8 ||
	    !len || type > UINT8_MAX || index > UINT8_MAX || ndim > OOM_MAX_DIMS ||
	    ret->bytes > STREAM_MOST || ret->storage > STREAM_MOST || ret->line > INT32_MAX ||
	    !*ret->name)
		return false;
	ret->device = (struct device){ .type = (uint8_t)type, .index = (uint8_t)index };
	ret->ndim = (uint8_t)ndim;
	return parse_sizes(word[0] + len, ret);
}

/* True if a fact's value is about this event. */
static bool is_of(const char *value, uint64_t time)
{
	uint64_t of_time;

	return value && facts__digits(&value, &of_time) && *value == '\n' && of_time == time;
}

int oom__read(const struct facts *f, uint64_t time, struct oom_tensors *ret)
{
	const char *value = NULL;
	char key[KEY], *at, *line;

	ret->n = 0;
	ret->text = NULL;
	for (uint64_t i = 0; i < OOM_FACTS && !is_of(value, time); i++)
		value = facts__get(f, key_of(key, "oom", i));
	if (!is_of(value, time))
		return 0;
	ret->text = at = strdup(value);
	if (!at)
		return -ENOMEM;
	strsep(&at, "\n");
	while (ret->n < OOM_TENSORS && (line = strsep(&at, "\n"))) {
		if (!parse_tensor(line, &ret->v[ret->n]))
			continue;
		ret->v[ret->n].order = (uint32_t)ret->n;
		ret->n++;
	}
	return 0;
}

void oom__free(struct oom_tensors *t)
{
	free(t->text);
}

/* ---- other processes ---- */

/* As key_of(), also for NEIGHBOURS_AT_END. */
static char *key_of_others(char key[KEY], uint64_t number, unsigned device)
{
	if (number != NEIGHBOURS_AT_END)
		return key_of(key, "neighbours", number);
	snprintf(key, KEY, "neighbours.end.%u", device);
	return key;
}

static void put_number(FILE *out, bool known, uint64_t n)
{
	if (known)
		fprintf(out, " %" PRIu64, n);
	else
		fputs(" ?", out);
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
		put_text(out, v->v[i].user, /*path=*/false);
		put_text(out, v->v[i].command, /*path=*/false);
		put_text(out, v->v[i].container, /*path=*/false);
	}
	if (!fclose(out))
		err = facts__set(f, key_of_others(key, number, device), text);
	free(text);
	return err;
}

/* Parses " N", or " ?" for a number that is not known (*known). False: it is neither. */
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

	for (uint64_t i = 0; i < OOM_FACTS; i++) {
		*ret = (struct neighbours){ 0 };
		value = facts__get(f, key_of_others(key, i, 0));
		if (parse_head(value, device, &of, ret) && of == time)
			return read_value(value, ret);
	}
	*ret = (struct neighbours){ 0 };
	return false;
}

bool neighbours__read_end(const struct facts *f, struct device device, struct neighbours *ret)
{
	char key[KEY];
	const char *value = facts__get(f, key_of_others(key, NEIGHBOURS_AT_END, device.index));
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
