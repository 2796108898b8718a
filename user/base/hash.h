/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Keyed hashes for tables whose keys come from a target or a file, and a set of strings. The seed
 * prevents deliberate collisions. */
#include <stddef.h>
#include <stdint.h>

struct hash_seed {
	uint64_t key[2];
};

/* The random seed of this process, the same at every call. */
struct hash_seed hash__seed(void);
/* The SipHash-1-3 of len bytes. */
uint64_t hash__bytes(struct hash_seed seed, const void *data, size_t len);

/* Two rounds of multiply and fold: fast enough to run for every event. */
static inline uint64_t hash__u64(struct hash_seed seed, uint64_t key)
{
	unsigned __int128 x = (unsigned __int128)(key ^ seed.key[0]) * (seed.key[1] | 1);
	uint64_t h = (uint64_t)x ^ (uint64_t)(x >> 64);

	x = (unsigned __int128)(h ^ seed.key[1]) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint64_t)x ^ (uint64_t)(x >> 64);
}

/* Mixes the bits without a seed, as splitmix64 ends: equal in all processes and versions, because
 * recordings keep such hashes. 0 gives 0. */
static inline uint64_t hash__mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* A set of strings. Each string is stored once, so equal strings of one set have equal
 * addresses. */

struct strings;

struct strings *strings__new(void);    /* NULL on ENOMEM */
void strings__free(struct strings *s); /* with all its strings; NULL is fine */
/* Replaces *text with the set's copy; NULL stays NULL. Returns 0, or -ENOMEM with *text
 * unchanged. */
int strings__keep(struct strings *s, const char **text);
/* Adds a string of len bytes, at least 1, unless the set has it. *ret: the number of the string in
 * the order of adding, from 0; strings of strings__keep() count, too. Returns 0 or -ENOMEM. */
int strings__number(struct strings *s, const void *bytes, size_t len, uint32_t *ret);
