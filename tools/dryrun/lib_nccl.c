// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * NCCL with one live rank. Other ranks are assumed to send the same data as this one, so that
 * counts, sizes and flags read back are plausible: a sum over n ranks is n times this rank's
 * values, a gather repeats them. Only small data is copied (dryrun__copy). Numbers of types and
 * operations: nccl.h.
 */
#include "lib_nccl.h"
#include "clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NCCL_MAGIC 0x4e43434cu /* "NCCL" */
#define MAX_RANKS (1 << 20)
#define NO_COLOR -1 /* NCCL_SPLIT_NOCOLOR */
#define SPREAD_MAX 4096

enum type {
	INT8,
	UINT8,
	INT32,
	UINT32,
	INT64,
	UINT64,
	HALF,
	FLOAT,
	DOUBLE,
	BFLOAT16,
	FLOAT8_E4M3,
	FLOAT8_E5M2,
	N_TYPES,
};
enum operation { SUM, PROD, MAX, MIN, AVG };

static const unsigned char type_size[N_TYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

struct unique_id {
	char bytes[128]; /* NCCL_UNIQUE_ID_BYTES */
};

static struct comm *find(void *comm)
{
	struct comm *c = comm;

	return c && c->magic == NCCL_MAGIC ? c : NULL;
}

static int create(struct comm **to, int ranks, int rank, int device)
{
	struct comm *c;

	if (!to || ranks < 0 || ranks > MAX_RANKS || rank < 0 || (ranks && rank >= ranks))
		return NCCL_INVALID_ARGUMENT;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NCCL_SYSTEM_ERROR;
	*c = (struct comm){ NCCL_MAGIC, ranks, rank, device };
	*to = c;
	/* Its device buffers, tens to hundreds of MiB by topology, are not counted. */
	dryrun__unmodelled("NCCL communicator: buffers");
	return NCCL_OK;
}

static int destroy(void *comm)
{
	struct comm *c = find(comm);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	c->magic = 0;
	free(c);
	return NCCL_OK;
}

/* ---- communicators ---- */

static int unique_id(struct unique_id *id)
{
	if (!id)
		return NCCL_INVALID_ARGUMENT;
	memset(id, 0, sizeof(*id));
	return syscall(SYS_getrandom, id, 32, 0) == 32 ? NCCL_OK : NCCL_SYSTEM_ERROR;
}

API(int, ncclGetUniqueId, struct unique_id *id)
{
	return unique_id(id);
}

API(int, ncclCommGetUniqueId, void *comm, struct unique_id *id)
{
	return find(comm) ? unique_id(id) : NCCL_INVALID_ARGUMENT;
}

API(int, ncclCommInitRank, struct comm **to, int ranks, struct unique_id id, int rank)
{
	return create(to, ranks, rank, dryrun__device());
}

API(int, ncclCommInitRankConfig, struct comm **to, int ranks, struct unique_id id, int rank,
    void *config)
{
	return create(to, ranks, rank, dryrun__device());
}

API(int, ncclCommInitRankScalable, struct comm **to, int ranks, int rank, int n_ids,
    struct unique_id *ids, void *config)
{
	return create(to, ranks, rank, dryrun__device());
}

API(int, ncclCommInitAll, struct comm **to, int n, const int *devices)
{
	int err = NCCL_OK;

	if (!to || n < 1 || n > DRYRUN_MAX_DEVICES)
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n && !err; i++)
		err = create(&to[i], n, i, devices ? devices[i] : i);
	return err;
}

API(int, ncclCommSplit, void *comm, int color, int key, struct comm **to, void *config)
{
	struct comm *c = find(comm);
	int n;

	if (!c || !to)
		return NCCL_INVALID_ARGUMENT;
	if (color == NO_COLOR) {
		*to = NULL;
		return NCCL_OK;
	}
	/* Only the other ranks know how many ranks gave this colour, unless PyTorch's split is in
	 * progress. The key is the rank. */
	if (c->ranks == 1)
		return create(to, 1, 0, c->device);
	n = nccl__split_size();
	return create(to, key < n ? n : 0, key < 0 ? 0 : key, c->device);
}

API(int, ncclCommShrink, void *comm, const int *excluded, int n, struct comm **to, void *config,
    int flags)
{
	struct comm *c = find(comm);
	int rank;

	if (!c || !to || n < 0 || (c->ranks && n >= c->ranks) || (n && !excluded))
		return NCCL_INVALID_ARGUMENT;
	rank = c->rank;
	for (int i = 0; i < n; i++)
		rank -= excluded[i] < c->rank;
	return create(to, c->ranks ? c->ranks - n : 0, rank < 0 ? 0 : rank, c->device);
}

API(int, ncclCommGrow, void *comm, int ranks, const struct unique_id *id, int rank,
    struct comm **to, void *config)
{
	struct comm *c = find(comm);

	return create(to, ranks, c ? c->rank : rank, c ? c->device : dryrun__device());
}

API(int, ncclCommDestroy, void *comm)
{
	return destroy(comm);
}

API(int, ncclCommAbort, void *comm)
{
	return destroy(comm);
}

API(int, ncclCommCount, void *comm, int *ranks)
{
	struct comm *c = find(comm);

	if (!c || !ranks)
		return NCCL_INVALID_ARGUMENT;
	if (!c->ranks)
		dryrun__unmodelled(
			"ncclCommCount of what was split off: taken for this rank and those below");
	*ranks = c->ranks ? c->ranks : c->rank + 1;
	return NCCL_OK;
}

API(int, ncclCommUserRank, void *comm, int *rank)
{
	struct comm *c = find(comm);

	if (!c || !rank)
		return NCCL_INVALID_ARGUMENT;
	*rank = c->rank;
	return NCCL_OK;
}

API(int, ncclCommCuDevice, void *comm, int *device)
{
	struct comm *c = find(comm);

	if (!c || !device)
		return NCCL_INVALID_ARGUMENT;
	*device = c->device;
	return NCCL_OK;
}

API(int, ncclCommGetAsyncError, void *comm, int *error)
{
	if (!find(comm) || !error)
		return NCCL_INVALID_ARGUMENT;
	*error = NCCL_OK;
	return NCCL_OK;
}

API(const char *, ncclGetLastError, void *comm)
{
	return "none: this is a dry run";
}

NO_EFFECT(ncclCommFinalize)
NO_EFFECT(ncclCommRevoke)
NO_EFFECT(ncclCommSuspend)
NO_EFFECT(ncclCommResume)

API(int, ncclGroupStart, void)
{
	nccl__group_start();
	return NCCL_OK;
}

API(int, ncclGroupEnd, void)
{
	nccl__group_end();
	return NCCL_OK;
}

/* ---- memory ---- */

API(int, ncclMemAlloc, void **to, size_t size)
{
	if (!to)
		return NCCL_INVALID_ARGUMENT;
	return dryrun__alloc(dryrun__device(), size, to) ? NCCL_UNHANDLED_CUDA : NCCL_OK;
}

API(int, ncclMemFree, void *ptr)
{
	return dryrun__free(ptr) ? NCCL_UNHANDLED_CUDA : NCCL_OK;
}

API(int, ncclCommRegister, void *comm, void *buffer, size_t size, void **handle)
{
	if (!find(comm) || !handle)
		return NCCL_INVALID_ARGUMENT;
	lib__give(handle);
	return NCCL_OK;
}

API(int, ncclCommWindowRegister, void *comm, void *buffer, size_t size, void **window, int flags)
{
	if (!find(comm) || !window)
		return NCCL_INVALID_ARGUMENT;
	lib__give(window);
	return NCCL_OK;
}

NO_EFFECT(ncclCommDeregister)
NO_EFFECT(ncclCommWindowDeregister)

/* ---- values ---- */

static float from_bfloat16(uint16_t b)
{
	uint32_t bits = (uint32_t)b << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint16_t to_bfloat16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return f != f ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff,
		 bits;
	float f;

	if (!exponent) { /* zero or subnormal: a multiple of 2^-24 */
		f = (float)fraction * 0x1p-24f;
		return sign ? -f : f;
	}
	bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint16_t to_half(float f)
{
	uint32_t bits, sign;
	int exponent;

	memcpy(&bits, &f, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	bits &= 0x7fffffff;
	if (bits >= 0x7f800000)
		return (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : 0x7c00));
	exponent = (int)(bits >> 23) - 112;
	if (exponent >= 31)
		return (uint16_t)(sign | 0x7c00);
	if (exponent <= 0) { /* round to the nearest multiple of 2^-24, ties to even */
		float scaled = (f < 0 ? -f : f) * 0x1p24f;
		uint32_t n = (uint32_t)scaled;
		float rest = scaled - (float)n;

		n += rest > 0.5f || (rest == 0.5f && (n & 1));
		return (uint16_t)(sign | n);
	}
	bits = (uint32_t)exponent << 23 | (bits & 0x7fffff);
	return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

/* x reduced over n ranks with equal values. */
#define REDUCED(x)                                                                                 \
	({                                                                                         \
		__auto_type x_ = (x);                                                              \
		__auto_type y_ = x_;                                                               \
                                                                                                   \
		if (op == SUM)                                                                     \
			y_ = (__typeof__(x_))(x_ * (__typeof__(x_))n);                             \
		else if (op == PROD)                                                               \
			for (int i_ = 1; i_ < n && y_ != 0 && y_ != 1; i_++)                       \
				y_ = (__typeof__(x_))(y_ * x_);                                    \
		y_;                                                                                \
	})

#define EACH(ctype)                                                                                \
	for (size_t i = 0; i < count; i++)                                                         \
	((ctype *)data)[i] = REDUCED(((ctype *)data)[i])

static void reduce(void *data, size_t count, enum type type, int op, int n)
{
	uint16_t *half = data;

	switch (type) {
	case INT8:
	case UINT8:
		EACH(uint8_t);
		break;
	case INT32:
	case UINT32:
		EACH(uint32_t);
		break;
	case INT64:
	case UINT64:
		EACH(uint64_t);
		break;
	case FLOAT:
		EACH(float);
		break;
	case DOUBLE:
		EACH(double);
		break;
	case HALF:
		for (size_t i = 0; i < count; i++)
			half[i] = to_half(REDUCED(from_half(half[i])));
		break;
	case BFLOAT16:
		for (size_t i = 0; i < count; i++)
			half[i] = to_bfloat16(REDUCED(from_bfloat16(half[i])));
		break;
	default: /* 8-bit floating point: unchanged */
		break;
	}
}

/* ---- collectives ---- */

/* The communicator, or NULL; sets *size to the bytes of `count` elements. */
static struct comm *begin(void *comm, size_t count, int type, void *stream, size_t *size)
{
	struct comm *c = find(comm);

	if (!c || type < 0 || type >= N_TYPES || count > SIZE_MAX / 8)
		return NULL;
	*size = count * type_size[type];
	dryrun__stream_run(stream, clock__transfer_ns(*size));
	if (type != UINT8)
		nccl__not_gathered();
	return c;
}

static void copy(void *to, const void *from, size_t size)
{
	if (to && from && to != from && size)
		dryrun__copy(to, from, size);
}

static void reduce_into(void *to, const void *from, size_t count, size_t size, int type, int op,
			int n)
{
	uint64_t data[DRYRUN_SMALL_COPY / 8];
	bool known;

	if (!to || !from)
		return;
	if (n <= 1 || size > sizeof(data) || (op != SUM && op != PROD)) {
		copy(to, from, size);
		return;
	}
	known = dryrun__known(from, size);
	dryrun__copy(data, from, size);
	reduce(data, count, (enum type)type, op, n);
	dryrun__copy(to, data, size);
	if (!known)
		dryrun__doubt(to, size);
}

static enum nccl_kind kind_of(int type)
{
	return type == INT64 ? NCCL_NUMBERS : type == UINT8 ? NCCL_BYTES : NCCL_OTHER;
}

static void *slot(const void *base, size_t size, int n)
{
	return base ? (char *)base + (size_t)n * size : NULL;
}

/*
 * Copies one rank's share to the places of all ranks. If their number is unknown, fills the rest of
 * the block. Large data is not copied.
 */
static void spread(void *to, const void *from, size_t size, int n)
{
	if (!size || size > DRYRUN_SMALL_COPY)
		return;
	if (!n) {
		uint64_t places = dryrun__block_size(to) / size;

		n = places > SPREAD_MAX ? SPREAD_MAX : (int)places;
	}
	for (int i = 0; i < n; i++)
		copy(slot(to, size, i), from, size);
}

API(int, ncclAllReduce, const void *from, void *to, size_t count, int type, int op, void *comm,
    void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	reduce_into(to, from, count, size, type, op, c->ranks);
	/*
	 * Gradients of DDP, which frees its first buckets after this when it builds better ones.
	 * FSDP's many collectives need no pause: none kept memory beyond its wait when measured.
	 */
	if (size > DRYRUN_SMALL_COPY)
		dryrun__collective_enqueued(stream);
	return NCCL_OK;
}

API(int, ncclReduce, const void *from, void *to, size_t count, int type, int op, int root,
    void *comm, void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (c->rank == root)
		reduce_into(to, from, count, size, type, op, c->ranks);
	return NCCL_OK;
}

API(int, ncclReduceScatter, const void *from, void *to, size_t count, int type, int op, void *comm,
    void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	reduce_into(to, slot(from, size, c->rank), count, size, type, op, c->ranks);
	return NCCL_OK;
}

API(int, ncclBroadcast, const void *from, void *to, size_t count, int type, int root, void *comm,
    void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (c->rank == root) {
		copy(to, from, size);
		nccl__send(c, NCCL_TO_ALL, from, size, kind_of(type));
	} else {
		nccl__receive(c, root, to, size, kind_of(type));
	}
	return NCCL_OK;
}

API(int, ncclBcast, void *data, size_t count, int type, int root, void *comm, void *stream)
{
	return ncclBroadcast(data, data, count, type, root, comm, stream);
}

API(int, ncclAllGather, const void *from, void *to, size_t count, int type, void *comm,
    void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	spread(to, from, size, c->ranks);
	if (type == INT64 && count == 1)
		nccl__gathered(from, size, 1);
	return NCCL_OK;
}

API(int, ncclGather, const void *from, void *to, size_t count, int type, int root, void *comm,
    void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (c->rank != root)
		return NCCL_OK;
	spread(to, from, size, c->ranks);
	if (type == INT64 && count == 1)
		nccl__gathered(from, size, 1);
	return NCCL_OK;
}

API(int, ncclScatter, const void *from, void *to, size_t count, int type, int root, void *comm,
    void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (c->rank != root) {
		nccl__receive(c, root, to, size, kind_of(type));
		return NCCL_OK;
	}
	copy(to, slot(from, size, root), size);
	for (int i = 0; i < c->ranks; i++) {
		if (i != root)
			nccl__send(c, i, slot(from, size, i), size, kind_of(type));
	}
	return NCCL_OK;
}

/* Assumes that this rank gets from each rank what it keeps for itself. */
API(int, ncclAlltoAll, const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	spread(to, slot(from, size, c->rank), size, c->ranks);
	return NCCL_OK;
}

API(int, ncclSend, const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	nccl__send(c, peer, from, size, kind_of(type));
	return NCCL_OK;
}

API(int, ncclRecv, void *to, size_t count, int type, int peer, void *comm, void *stream)
{
	size_t size;
	struct comm *c = begin(comm, count, type, stream, &size);

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	nccl__receive(c, peer, to, size, kind_of(type));
	return NCCL_OK;
}

/* An operation with the caller's factor, which may be in device memory: values stay unchanged. */
API(int, ncclRedOpCreatePreMulSum, int *op, void *scalar, int type, int residence, void *comm)
{
	if (!op || !find(comm))
		return NCCL_INVALID_ARGUMENT;
	*op = AVG + 1;
	return NCCL_OK;
}

NO_EFFECT(ncclRedOpDestroy)
