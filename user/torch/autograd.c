/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "torch/autograd.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "process/proc.h"

#define NAME_MAX_BYTES 512
#define WATCHED 65536		  /* nodes looked at before the layout is as sure as it gets */
#define MAX_SEQUENCE (1ULL << 40) /* below what an address can be, above what is counted to */

static const struct node_layout layouts[NODE_LAYOUTS] = {
	{ 3, 6, 472 }, /* up to 2.12: enable_shared_from_this before them */
	{ 2, 5, 464 }, /* from 2.13 on: a count of references */
};

void node_guess__init(struct node_guess *g, const char *torch_version)
{
	char *end;
	unsigned long major = strtoul(torch_version, &end, 10);
	unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	memset(g, 0, sizeof(*g));
	g->first = major > 2 || (major == 2 && minor >= 13);
}

/* Could these be the sequence number and the thread of a node that was just made after the thread's
 * last one? */
static bool fits(const struct node_guess *g, unsigned int i, uint32_t slot, bool known,
		 uint64_t sequence, uint64_t thread)
{
	if (sequence >= MAX_SEQUENCE || !thread || thread > UINT32_MAX)
		return false;
	return !known ||
	       (sequence > g->last[slot].sequence[i] && thread == g->last[slot].thread[i]);
}

void node_guess__see(struct node_guess *g, uint32_t tid, uint64_t node,
		     const __u64 head[MT_NODE_WORDS])
{
	uint32_t slot = tid % NODE_THREADS;
	bool known = g->last[slot].tid == tid;

	if (g->seen >= WATCHED || (known && g->last[slot].node == node)) /* its next output */
		return;
	g->seen++;
	for (unsigned int i = 0; i < NODE_LAYOUTS; i++) {
		uint64_t sequence = head[layouts[i].sequence], thread = head[layouts[i].thread];

		if (fits(g, i, slot, known, sequence, thread))
			g->good[i]++;
		else
			g->bad[i]++;
		g->last[slot].sequence[i] = sequence;
		g->last[slot].thread[i] = thread;
	}
	g->last[slot].tid = tid;
	g->last[slot].node = node;
}

/* A node may come by unusual ways: some that do not fit are no proof. */
static bool believed(const struct node_guess *g, unsigned int i)
{
	return g->bad[i] <= 4 + g->good[i] / 8;
}

const struct node_layout *node_guess__layout(const struct node_guess *g)
{
	for (unsigned int k = 0; k < NODE_LAYOUTS; k++) {
		unsigned int i = (g->first + k) % NODE_LAYOUTS;

		if (believed(g, i))
			return &layouts[i];
	}
	return NULL;
}

/* One part: its length in figures, then so many characters. NULL: there is none. */
static const char *name_part(const char *s, const char **name, size_t *len)
{
	size_t n = 0;

	if (*s < '1' || *s > '9')
		return NULL;
	while (*s >= '0' && *s <= '9' && n <= NAME_MAX_BYTES)
		n = n * 10 + (size_t)(*s++ - '0');
	if (strnlen(s, n) < n)
		return NULL;
	*name = s;
	*len = n;
	return s + n;
}

bool autograd_node__plain_name(const char *mangled, char *buf, size_t size)
{
	const char *s = mangled + (*mangled == '*'), *name = NULL, *next;
	size_t len = 0;

	/* The "*" says that names are compared by address; of what is nested only "N parts E" is
	 * looked at. */
	s += *s == 'N';
	while ((next = name_part(s, &name, &len)))
		s = next;
	if (!len || len >= size)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			return false;
	}
	memcpy(buf, name, len);
	buf[len] = '\0';
	return true;
}

int autograd_node__class(const struct proc *p, uint64_t vptr, char *buf, size_t size)
{
	char text[NAME_MAX_BYTES];
	uint64_t type, name;
	size_t at = 0;
	int err;

	if (vptr < 8 || vptr % 8)
		return -EBADMSG;
	err = proc__read_u64(p, vptr - 8, &type);
	if (!err)
		err = proc__read_u64(p, type + 8, &name);
	/* In pieces that do not cross pages: what follows the name may not be there. */
	while (!err && at < sizeof(text)) {
		size_t n = 64 - (name + at) % 64;

		n = n < sizeof(text) - at ? n : sizeof(text) - at;
		err = proc__read(p, name + at, text + at, n);
		if (!err && memchr(text + at, '\0', n))
			return autograd_node__plain_name(text, buf, size) ? 0 : -EBADMSG;
		at += n;
	}
	return err ? err : -EBADMSG;
}
