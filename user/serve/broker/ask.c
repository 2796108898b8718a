/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/ask.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "serve/broker/broker.h"
#include "serve/broker/peers.h"
#include "serve/server/link.h"

#define TEXT_MOST 1024 /* 256 UTF-8 characters, the limit of the web process */

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
		ask__refuse(p, id, 503, NULL,
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
	peer__send(p, o, -1);
}

/* ---- members of a request ---- */

bool ask__number(struct peer *p, json_t *msg, const char *key, double min, double max, double *ret)
{
	const json_t *v = json_object_get(msg, key);
	double d = json_number_value(v);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_number(v) || !isfinite(d) || d < min || d > max) {
		ask__refuse(p, ask__id(msg), 422, key, "%s: must be a number from %g to %g", key,
			    min, max);
		return false;
	}
	*ret = d;
	return true;
}

bool ask__count(struct peer *p, json_t *msg, const char *key, uint64_t min, uint64_t max,
		uint64_t *ret)
{
	const json_t *v = json_object_get(msg, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
	    json_integer_value(v) > (json_int_t)max) {
		ask__refuse(p, ask__id(msg), 422, key,
			    "%s: must be a whole number from %llu to %llu", key,
			    (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = (uint64_t)json_integer_value(v);
	return true;
}

bool ask__text(struct peer *p, json_t *msg, const char *key, const char **ret)
{
	const json_t *v = json_object_get(msg, key);
	const char *s = json_string_value(v);

	if (!v || json_is_null(v))
		return true;
	if (!s || !*s || json_string_length(v) != strlen(s) || strlen(s) > TEXT_MOST) {
		ask__refuse(p, ask__id(msg), 422, key, "%s: must be text of 1 to %d bytes", key,
			    TEXT_MOST);
		return false;
	}
	for (const char *c = s; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127) {
			ask__refuse(p, ask__id(msg), 422, key, "%s: contains a control character",
				    key);
			return false;
		}
	*ret = s;
	return true;
}
