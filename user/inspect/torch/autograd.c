/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pytensor.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/proc.h"

#define NAME_MAX_BYTES 512
#define WATCHED 65536		  /* nodes examined before the statistics stop */
#define MAX_SEQUENCE (1ULL << 40) /* smaller than any address, larger than any count */

enum { UNTIL_2_12, SINCE_2_13 };

/* Indices of a node's words: sequence number, thread; bytes of Node. */
static const struct node_layout layouts[NODE_LAYOUTS] = {
	[UNTIL_2_12] = { 3, 6, 472 }, /* after enable_shared_from_this */
	[SINCE_2_13] = { 2, 5, 464 }, /* after a reference count */
};

void node_guess__init(struct node_guess *guess, const char *torch_version)
{
	char *end;
	unsigned long major = strtoul(torch_version, &end, 10);
	unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	memset(guess, 0, sizeof(*guess));
	guess->likely = major > 2 || (major == 2 && minor >= 13) ? SINCE_2_13 : UNTIL_2_12;
}

/* True if the values can be a sequence number and a thread. */
static bool is_possible(uint64_t sequence, uint64_t thread)
{
	return (sequence < MAX_SEQUENCE || sequence == NODE_NO_SEQUENCE) && thread &&
	       thread <= UINT32_MAX;
}

/* True if the values, read with layout i, fit a node that the thread made after its previous one.
 * known: the slot has that one. Views, AOTAutograd and functorch also show older nodes again. */
static bool follows(const struct node_guess *guess, unsigned int i, uint32_t slot, bool known,
		    uint64_t sequence, uint64_t thread)
{
	return !known ||
	       (sequence > guess->last[slot].sequence[i] && thread == guess->last[slot].thread[i]);
}

/* Scores each layout: are the node's values possible, and do they follow those of the thread's
 * previous node? */
void node_guess__see(struct node_guess *guess, uint32_t tid, uint64_t node,
		     const __u64 head[MT_NODE_WORDS])
{
	uint32_t slot = tid % NODE_THREADS;
	bool known = guess->last[slot].tid == tid;

	if (guess->seen >= WATCHED ||
	    (known && guess->last[slot].node == node)) /* a further output of the same node */
		return;
	guess->seen++;
	for (unsigned int i = 0; i < NODE_LAYOUTS; i++) {
		uint64_t sequence = head[layouts[i].sequence], thread = head[layouts[i].thread];

		if (!is_possible(sequence, thread))
			guess->bad[i]++;
		else if (follows(guess, i, slot, known, sequence, thread))
			guess->good[i]++;
		guess->last[slot].sequence[i] = sequence;
		guess->last[slot].thread[i] = thread;
	}
	guess->last[slot].tid = tid;
	guess->last[slot].node = node;
}

/* True if few of the nodes have impossible values in layout i: at most an eighth of the other
 * nodes' number, and 4 more, since few nodes prove little. */
static bool is_plausible(const struct node_guess *guess, unsigned int i)
{
	return guess->bad[i] <= 4 + (guess->seen - guess->bad[i]) / 8;
}

/* True if layout i has far more nodes in order than layout k: twice as many, and 8 more, since few
 * nodes prove little. */
static bool is_better(const struct node_guess *guess, unsigned int i, unsigned int k)
{
	return is_plausible(guess, i) && guess->good[i] > 8 + 2 * guess->good[k];
}

/* Prefers the layout of PyTorch's version, unless another one fits far better. */
const struct node_layout *node_guess__layout(const struct node_guess *guess)
{
	unsigned int best = NODE_LAYOUTS;

	for (unsigned int k = 0; k < NODE_LAYOUTS; k++) {
		unsigned int i = (guess->likely + k) % NODE_LAYOUTS;

		if (best == NODE_LAYOUTS ? is_plausible(guess, i) : is_better(guess, i, best))
			best = i;
	}
	return best < NODE_LAYOUTS ? &layouts[best] : NULL;
}

/* Parses one component of a mangled name: its length in decimal, then the characters. Returns the
 * text after it; NULL: no component. */
static const char *parse_component(const char *text, const char **name, size_t *len)
{
	size_t component_len = 0;

	if (*text < '1' || *text > '9')
		return NULL;
	while (*text >= '0' && *text <= '9' && component_len <= NAME_MAX_BYTES)
		component_len = component_len * 10 + (size_t)(*text++ - '0');
	if (strnlen(text, component_len) < component_len)
		return NULL;
	*name = text;
	*len = component_len;
	return text + component_len;
}

bool autograd_node__plain_name(const char *mangled, char *buf, size_t size)
{
	const char *at = mangled + (*mangled == '*'), *name = NULL, *next;
	size_t len = 0;

	/* "*" means that names are compared by address. Nested names must be plain "N components
	 * E". */
	at += *at == 'N';
	while ((next = parse_component(at, &name, &len)))
		at = next;
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

/* Follows the vtable to the type's name (C++ ABI): its type information is the word before it. */
int autograd_node__class(const struct proc *proc, uint64_t vptr, char *buf, size_t size)
{
	char text[NAME_MAX_BYTES];
	uint64_t type, name;
	size_t at = 0;
	int err;

	if (vptr < 8 || vptr % 8)
		return -EBADMSG;
	err = proc__read_u64(proc, vptr - 8, &type) ?: proc__read_u64(proc, type + 8, &name);
	/* Reads pieces within a page: the next page may not exist. */
	while (!err && at < sizeof(text)) {
		size_t piece = 64 - (name + at) % 64; /* 64 divides a page */

		piece = piece < sizeof(text) - at ? piece : sizeof(text) - at;
		err = proc__read(proc, name + at, text + at, piece);
		if (!err && memchr(text + at, '\0', piece))
			return autograd_node__plain_name(text, buf, size) ? 0 : -EBADMSG;
		at += piece;
	}
	return err ?: -EBADMSG;
}
