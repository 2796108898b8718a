/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: messages of two clients of the store. Each chunk has one byte, whose lowest bit
 * is the client; its other bits and the next byte are the length. Answers must not depend on how
 * messages are divided: a second store gets single bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "estimate/store/tcp_store.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct side {
	struct tcp_store *store;
	struct tcp_store_client *clients[2];
	uint64_t sum; /* sum of the answers, without random identities */
	int err[2];
};

static int on_send(void *ctx, void *connection, const void *bytes, size_t n)
{
	struct side *s = ctx;

	if (connection != &s->err[0] && connection != &s->err[1])
		abort();
	if (n && !bytes)
		abort();
	s->sum += n;
	return 0;
}

static void on_gave_up(void *ctx, const char *key)
{
	if (!terminal__harmless(key, strlen(key)))
		abort();
}

static void feed(struct side *s, unsigned which, const uint8_t *data, size_t n, uint64_t now)
{
	if (!s->err[which])
		s->err[which] = tcp_store__feed(s->store, s->clients[which], data, n, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct side whole = { 0 }, pieces = { 0 }, *sides[] = { &whole, &pieces };
	uint64_t now = 0;

	if (size > 4000)
		return 0;
	for (unsigned i = 0; i < 2; i++) {
		const struct tcp_store_opts opts = {
			.wait_limit_ms = 50, .send = on_send, .gave_up = on_gave_up, .ctx = sides[i]
		};

		sides[i]->store = tcp_store__new(&opts);
		for (unsigned k = 0; k < 2; k++)
			sides[i]->clients[k] = tcp_store__connect(sides[i]->store,
								  &sides[i]->err[k]);
	}
	while (size >= 2) {
		unsigned which = data[0] & 1;
		size_t n = (data[0] >> 1 | (size_t)data[1] << 7) % 512;

		data += 2;
		size -= 2;
		n = n < size ? n : size;
		feed(&whole, which, data, n, now);
		for (size_t i = 0; i < n; i++)
			feed(&pieces, which, data + i, 1, now);
		if (!whole.err[which] != !pieces.err[which] ||
		    (!whole.err[which] && whole.sum != pieces.sum))
			abort();
		/* An error drops the answers of the same call, so later answers may differ. */
		if (whole.err[which])
			break;
		data += n;
		size -= n;
		now += 20;
		if (tcp_store__tick(whole.store, now) != tcp_store__tick(pieces.store, now))
			abort();
	}
	for (unsigned i = 0; i < 2; i++)
		tcp_store__free(sides[i]->store);
	return 0;
}
