/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/view/step_messages.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

struct step_messages {
	uid_t *users; /* of all processes so far */
	size_t nusers, room_users;
	struct step_message {
		char *text;
		uid_t uid;
	} kept[STEP_MESSAGES_KEPT]; /* message i is at i % STEP_MESSAGES_KEPT */
	uint64_t first, n;	    /* numbers of the oldest kept message, and of all */
	size_t bytes;
};

static void drop_oldest(struct step_messages *m)
{
	struct step_message *message = &m->kept[m->first++ % STEP_MESSAGES_KEPT];

	m->bytes -= strlen(message->text);
	free(message->text);
	message->text = NULL;
}

struct step_messages *step_messages__new(void)
{
	return calloc(1, sizeof(struct step_messages));
}

void step_messages__free(struct step_messages *m)
{
	if (!m)
		return;
	while (m->first < m->n)
		drop_oldest(m);
	free(m->users);
	free(m);
}

void step_messages__add(struct step_messages *m, uid_t uid, char *text)
{
	size_t len = strlen(text);

	while (m->n - m->first == STEP_MESSAGES_KEPT ||
	       (m->n > m->first && m->bytes + len > STEP_MESSAGES_BYTES))
		drop_oldest(m);
	m->kept[m->n++ % STEP_MESSAGES_KEPT] = (struct step_message){ text, uid };
	m->bytes += len;
}

void step_messages__add_user(struct step_messages *m, uid_t uid)
{
	for (size_t i = 0; i < m->nusers; i++)
		if (m->users[i] == uid)
			return;
	if (!array__grow(&m->users, &m->room_users, m->nusers + 1, sizeof(*m->users)))
		m->users[m->nusers++] = uid;
}

size_t step_messages__users(void *ctx, const uid_t **ret)
{
	const struct step_messages *m = ctx;

	*ret = m->users;
	return m->nusers;
}

const char *step_messages__next(void *ctx, uid_t uid, uint64_t *at)
{
	const struct step_messages *m = ctx;
	const struct step_message *message;

	if (*at < m->first)
		*at = m->first;
	while (*at < m->n) {
		message = &m->kept[(*at)++ % STEP_MESSAGES_KEPT];
		if (!uid || uid == geteuid() || uid == message->uid)
			return message->text;
	}
	return NULL;
}
