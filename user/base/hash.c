/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static struct hash_seed own_seed; /* the same for all tables of the process */

static void make_seed(void)
{
	if (getrandom(&own_seed, sizeof(own_seed), GRND_NONBLOCK) != (ssize_t)sizeof(own_seed)) {
		/* Early boot only. This seed is weaker, but a target still does not know it. */
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		own_seed.key[0] = (uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^
				  (uint64_t)getpid();
		own_seed.key[1] = (uint64_t)(uintptr_t)&now ^ (uint64_t)now.tv_sec << 32;
	}
}

struct hash_seed hash__seed(void)
{
	static pthread_once_t made = PTHREAD_ONCE_INIT;

	pthread_once(&made, make_seed);
	return own_seed;
}

static uint64_t rotl(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

/* Does one round of SipHash on its four words of state. */
static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

/* SipHash-1-3: one round for each 8 bytes, the rest with the length as the last word, then three
 * rounds. */
uint64_t hash__bytes(struct hash_seed seed, const void *data, size_t len)
{
	uint64_t v[4] = {
		seed.key[0] ^ UINT64_C(0x736f6d6570736575),
		seed.key[1] ^ UINT64_C(0x646f72616e646f6d),
		seed.key[0] ^ UINT64_C(0x6c7967656e657261),
		seed.key[1] ^ UINT64_C(0x7465646279746573),
	};
	const unsigned char *at = data;
	uint64_t word, last = (uint64_t)len << 56;
	size_t left = len;

	for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
	}
	word = 0;
	if (left)
		memcpy(&word, at, left);
	last |= word;
	v[3] ^= last;
	sip_round(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
