/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/ask.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "serve/broker/broker.h"
#include "serve/broker/peers.h"
#include "serve/server/link.h"

/* ---- messages ---- */

const char *peer__name(enum peer_kind kind)
{
	static const char *const names[PEER_NR] = {
		[PEER_WEB] = "web", [PEER_PUSH] = "push", [PEER_LOOK] = "look"
	};

	return names[kind];
}

void peer__send(struct peer *p, json_t *msg, int fd)
{
	int err = -EPIPE;

	if (p->link && msg) {
		err = link__send(p->link, msg, fd);
	} else {
		json_decref(msg);
		if (fd >= 0)
			close(fd);
	}
	/* The peer has not read thousands of messages, so its state would be wrong. */
	if (err == -ENOBUFS || err == -ENOMEM) {
		log_err("%s: does not read its messages: stopping it", peer__name(p->kind));
		p->broken = true;
	}
}

void peers__tell(struct broker *b, json_t *msg, int fd, bool soft)
{
	for (int k = 0; k < PEER_LOOK && msg; k++) {
		struct peer *p = &b->peers[k];

		if (!p->link || !p->met)
			continue;
		if (soft)
			link__offer(p->link, json_incref(msg));
		else
			peer__send(p, json_incref(msg), fd < 0 ? -1 : dup(fd));
	}
	json_decref(msg);
}

/* ---- answers ---- */

json_int_t ask__id(const json_t *msg)
{
	return json_integer_value(json_object_get(msg, "id"));
}

void ask__answer(struct peer *p, json_int_t id, json_t *doc, int fd)
{
	json_t *o = doc ? doc : json_object();

	/* A peer that does not read its answers must not use up all descriptors. */
	if (fd >= 0 && p->link && link__crowded(p->link)) {
		close(fd);
		json_decref(o);
		ask__refuse(p, id, 503, /*field=*/NULL,
			    "%d answers are already queued: try again in a moment", LINK_FDS);
		return;
	}
	if (o) {
		json_object_set_new(o, "id", json_integer(id));
		json_object_set_new(o, "ok", json_true());
	}
	peer__send(p, o, fd);
}

void ask__refuse(struct peer *p, json_int_t id, int status, const char *field, const char *fmt, ...)
{
	char text[700], clean[700];
	va_list ap;
	json_t *o;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text__clean(clean, sizeof(clean), text, strlen(text));
	o = json_pack("{s:I,s:b,s:i,s:s}", "id", id, "ok", 0, "status", status, "detail", clean);
	if (o && field)
		json_object_set_new(o, "field", json_string(field));
	peer__send(p, o, /*fd=*/-1);
}

/* ---- members of a request ---- */

/* Refuses a request because of a member, and says what it must be. */
static void refuse_field(struct peer *p, const json_t *msg, const struct field *f)
{
	json_int_t id = ask__id(msg);

	if (f->help)
		ask__refuse(p, id, 422, f->name, "%s: %s", f->name, f->help);
	else if (f->type == FIELD_NUMBER)
		ask__refuse(p, id, 422, f->name, "%s: must be a number from %g to %g", f->name,
			    f->min, f->max);
	else if (f->type == FIELD_INTEGER)
		ask__refuse(p, id, 422, f->name, "%s: must be a whole number from %.0f to %.0f",
			    f->name, f->min, f->max);
	else if (f->type == FIELD_BOOLEAN)
		ask__refuse(p, id, 422, f->name, "%s: must be true or false", f->name);
	else if (field__is_text(f, json_object_get(msg, f->name)))
		ask__refuse(p, id, 422, f->name, "%s: contains a control character", f->name);
	else
		ask__refuse(p, id, 422, f->name, "%s: must be text of %zu to %zu bytes", f->name,
			    f->shortest, f->longest);
}

bool ask__fits(struct peer *p, const json_t *msg, const struct field *fields)
{
	const struct field *wrong = field__wrong(fields, msg);

	if (wrong)
		refuse_field(p, msg, wrong);
	return !wrong;
}

const char *ask__text(const json_t *msg, const char *key)
{
	return json_string_value(json_object_get(msg, key));
}

uint64_t ask__count(const json_t *msg, const char *key, uint64_t otherwise)
{
	const json_t *v = json_object_get(msg, key);

	return json_is_integer(v) ? (uint64_t)json_integer_value(v) : otherwise;
}
