// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* cuFFT: plans are numbers, transforms do nothing, and the size of a plan's workspace is a
 * guess. */
#include "lib.h"

#include <stdatomic.h>

#define MAX_RANK 3

/* True if one kernel can compute a transform in shared memory: cuFFT then needs no workspace. */
static bool one_pass(long long n)
{
	static const int primes[] = { 2, 3, 5, 7 };

	if (n > 4096)
		return false;
	for (unsigned int i = 0; i < sizeof(primes) / sizeof(*primes); i++)
		while (n % primes[i] == 0)
			n /= primes[i];
	return n == 1;
}

/* A transform of several passes needs a second buffer as large as its data. */
static int plan_size(int rank, const long long *n, int type, long long batch, size_t *size)
{
	uint64_t total = lib__data_size(type);

	if (rank < 1 || rank > MAX_RANK || !n || batch < 1)
		return CUFFT_INVALID_VALUE;
	if (type == 0 || type == 1 || type == 2) /* real data: half the complex numbers */
		total *= 2;
	for (int i = 0; i < rank; i++)
		if (n[i] < 1 || __builtin_mul_overflow(total, (uint64_t)n[i], &total))
			return CUFFT_INVALID_VALUE;
	if (__builtin_mul_overflow(total, (uint64_t)batch, &total))
		return CUFFT_INVALID_VALUE;
	if (size)
		*size = rank == 1 && one_pass(n[0]) ? 0 : total;
	dryrun__unmodelled("cuFFT plan: workspace");
	return 0;
}

API(int, cufftCreate, int *plan)
{
	static atomic_int last;

	if (!plan)
		return CUFFT_INVALID_VALUE;
	*plan = atomic_fetch_add(&last, 1) + 1;
	return 0;
}

API(int, cufftXtMakePlanMany, int plan, int rank, long long *n, long long *in_embed,
    long long in_stride, long long in_distance, int in_type, long long *out_embed,
    long long out_stride, long long out_distance, int out_type, long long batch, size_t *size,
    int execution)
{
	return plan_size(rank, n, execution, batch, size);
}

NO_EFFECT(cufftDestroy)
NO_EFFECT(cufftSetAutoAllocation)
NO_EFFECT(cufftSetStream)
NO_EFFECT(cufftSetWorkArea)
NO_EFFECT(cufftXtExec)
