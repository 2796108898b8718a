// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The runtime API: streams, events, graphs, kernels, module variables. */
#include "clock.h"
#include "core.h"
#include "pool.h"
#include "props.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dim3 {
	unsigned int x, y, z;
};

/* ---- streams ---- */

API(int, cudaStreamCreateWithPriority, void **stream, unsigned int flags, int priority)
{
	if (!stream)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(stream__new(flags, priority, stream));
}

API(int, cudaStreamCreateWithFlags, void **stream, unsigned int flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

API(int, cudaStreamCreate, void **stream)
{
	return cudaStreamCreateWithPriority(stream, 0, 0);
}

API(int, cudaStreamDestroy, void *stream)
{
	return dryrun__result(stream__destroy(stream));
}

API(int, cudaStreamQuery, void *stream)
{
	return dryrun__result(stream__query(stream));
}

API(int, cudaStreamSynchronize, void *stream)
{
	int err = dryrun__stream_wait(stream);

	if (!err)
		pool__at_sync(stream__device(stream));
	return dryrun__result(err);
}

API(int, cudaStreamWaitEvent, void *stream, void *event, unsigned int flags)
{
	return dryrun__result(stream__wait_event(stream, event));
}

API(int, cudaStreamGetPriority, void *stream, int *priority)
{
	*priority = stream__priority(stream);
	return CUDA_OK;
}

API(int, cudaStreamGetFlags, void *stream, unsigned int *flags)
{
	*flags = stream__flags(stream);
	return CUDA_OK;
}

API(int, cudaStreamGetId, void *stream, unsigned long long *id)
{
	*id = (uintptr_t)stream;
	return CUDA_OK;
}

API(int, cudaStreamGetDevice, void *stream, int *device)
{
	*device = stream__device(stream);
	return CUDA_OK;
}

NO_EFFECT(cudaStreamAttachMemAsync)
NO_EFFECT(cudaStreamSetAttribute)

API(int, cudaLaunchHostFunc, void *stream, void (*call)(void *), void *what)
{
	return dryrun__result(call ? stream__host_func(stream, call, what) : CUDA_INVALID_VALUE);
}

API(int, cudaStreamAddCallback, void *stream, void (*call)(void *, int, void *), void *what,
    unsigned int flags)
{
	if (!call)
		return dryrun__result(CUDA_INVALID_VALUE);
	stream__reach(stream);
	call(stream, CUDA_OK, what);
	return CUDA_OK;
}

/* ---- events ---- */

API(int, cudaEventCreateWithFlags, void **event, unsigned int flags)
{
	if (!event)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(event__new(flags, event));
}

API(int, cudaEventCreate, void **event)
{
	return cudaEventCreateWithFlags(event, 0);
}

API(int, cudaEventDestroy, void *event)
{
	return dryrun__result(event__destroy(event));
}

API(int, cudaEventRecordWithFlags, void *event, void *stream, unsigned int flags)
{
	return dryrun__result(event__record(event, stream));
}

API(int, cudaEventRecord, void *event, void *stream)
{
	return dryrun__result(event__record(event, stream));
}

API(int, cudaEventQuery, void *event)
{
	return dryrun__result(event__query(event));
}

API(int, cudaEventSynchronize, void *event)
{
	int err = event__wait(event);

	if (!err)
		pool__at_sync(dryrun__device());
	return dryrun__result(err);
}

API(int, cudaEventElapsedTime, float *ms, void *start, void *end)
{
	return dryrun__result(event__elapsed(ms, start, end));
}

API(int, cudaEventElapsedTime_v2, float *ms, void *start, void *end)
{
	return dryrun__result(event__elapsed(ms, start, end));
}

/* ---- captures and graphs ---- */

API(int, cudaStreamBeginCapture, void *stream, int mode)
{
	return dryrun__result(capture__begin(stream, NULL));
}

API(int, cudaStreamBeginCaptureToGraph, void *stream, struct graph *graph, const void *deps,
    const void *edges, size_t n, int mode)
{
	return dryrun__result(capture__begin(stream, graph));
}

API(int, cudaStreamEndCapture, void *stream, struct graph **graph)
{
	return dryrun__result(capture__end(stream, graph));
}

API(int, cudaStreamIsCapturing, void *stream, int *status)
{
	return dryrun__result(capture__info(stream, status, NULL, NULL, NULL, NULL));
}

API(int, cudaStreamGetCaptureInfo_v2, void *stream, int *status, uint64_t *id, void **graph,
    const void *const **deps, size_t *n_deps)
{
	return dryrun__result(capture__info(stream, status, id, graph, deps, n_deps));
}

API(int, cudaStreamGetCaptureInfo_v3, void *stream, int *status, uint64_t *id, void **graph,
    const void *const **deps, const void **edges, size_t *n_deps)
{
	if (edges)
		*edges = NULL;
	return dryrun__result(capture__info(stream, status, id, graph, deps, n_deps));
}

/* From CUDA 13 on this name has the arguments of _v3. CUDA 12 passes the first three only; do not
 * read the others. */
API(int, cudaStreamGetCaptureInfo, void *stream, int *status, uint64_t *id, void **graph,
    const void *const **deps, const void **edges, size_t *n_deps)
{
	if (dryrun__runtime_major() < 13)
		return dryrun__result(capture__info(stream, status, id, NULL, NULL, NULL));
	return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, deps, edges, n_deps);
}

/* dependencies of nodes are not stored */
NO_EFFECT(cudaStreamUpdateCaptureDependencies)

API(int, cudaThreadExchangeStreamCaptureMode, int *mode)
{
	static __thread int own; /* cudaStreamCaptureModeGlobal */
	int before = own;

	if (!mode || *mode < 0 || *mode > 2)
		return dryrun__result(CUDA_INVALID_VALUE);
	own = *mode;
	*mode = before;
	return CUDA_OK;
}

API(int, cudaGraphCreate, struct graph **graph, unsigned int flags)
{
	*graph = graph__new();
	return dryrun__result(*graph ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

API(int, cudaGraphDestroy, struct graph *graph)
{
	if (!graph)
		return dryrun__result(CUDA_INVALID_VALUE);
	graph__put(graph);
	return CUDA_OK;
}

/* An executable graph is another reference to the graph it was made from. */
API(int, cudaGraphInstantiateWithFlags, struct graph **exec, struct graph *graph,
    unsigned long long flags)
{
	if (!graph || !exec)
		return dryrun__result(CUDA_INVALID_VALUE);
	*exec = graph__get(graph);
	return CUDA_OK;
}

/* The signature of 12 and 13, as _WithFlags; that of 11 is not supported. */
API(int, cudaGraphInstantiate, struct graph **exec, struct graph *graph, unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

API(int, cudaGraphExecDestroy, struct graph *exec)
{
	return cudaGraphDestroy(exec);
}

API(int, cudaGraphUpload, struct graph *exec, void *stream)
{
	return dryrun__result(exec ? CUDA_OK : CUDA_INVALID_VALUE);
}

API(int, cudaGraphLaunch, struct graph *exec, void *stream)
{
	if (!exec)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(dryrun__stream_run(stream, graph__ns(exec)));
}

API(int, cudaGraphGetNodes, struct graph *graph, void **nodes, size_t *n)
{
	if (!graph || !n)
		return dryrun__result(CUDA_INVALID_VALUE);
	if (!nodes) {
		*n = graph__n_nodes(graph);
		return CUDA_OK;
	}
	for (size_t i = 0; i < *n; i++)
		nodes[i] = i < graph__n_nodes(graph) ? graph__node(graph, i) : NULL;
	if (*n > graph__n_nodes(graph))
		*n = graph__n_nodes(graph);
	return CUDA_OK;
}

API(int, cudaGraphNodeGetType, void *node, int *type)
{
	*type = 0; /* kernel node */
	return CUDA_OK;
}

API(int, cudaGraphDebugDotPrint, struct graph *graph, const char *path, unsigned int flags)
{
	FILE *f = graph && path ? fopen(path, "we") : NULL;

	if (!f)
		return dryrun__result(CUDA_INVALID_VALUE);
	fprintf(f, "digraph dry_run {\n");
	for (size_t i = 0; i < graph__n_nodes(graph); i++)
		fprintf(f, "\tn%zu;\n", i);
	fprintf(f, "}\n");
	fclose(f);
	return CUDA_OK;
}

API(int, cudaUserObjectCreate, struct user_object **object, void *what, void (*destroy)(void *),
    unsigned int count, unsigned int flags)
{
	if (!object || !count)
		return dryrun__result(CUDA_INVALID_VALUE);
	*object = user_object__new(what, destroy, count);
	return dryrun__result(*object ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

API(int, cudaUserObjectRetain, struct user_object *object, unsigned int count)
{
	user_object__get(object, count);
	return CUDA_OK;
}

API(int, cudaUserObjectRelease, struct user_object *object, unsigned int count)
{
	user_object__put(object, count);
	return CUDA_OK;
}

#define GRAPH_USER_OBJECT_MOVE 1u

API(int, cudaGraphRetainUserObject, struct graph *graph, struct user_object *object,
    unsigned int count, unsigned int flags)
{
	int err;

	if (!graph || !object || !count)
		return dryrun__result(CUDA_INVALID_VALUE);
	err = graph__keep(graph, object, count);
	if (!err && !(flags & GRAPH_USER_OBJECT_MOVE))
		user_object__get(object, count);
	return dryrun__result(err);
}

/* ---- kernels ---- */

API(int, cudaLaunchKernel, const void *function, struct dim3 grid, struct dim3 block, void **args,
    size_t shared, void *stream)
{
	int err = dryrun__use(dryrun__device());
	uint64_t threads = (uint64_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;

	return dryrun__result(err ? err : dryrun__stream_run(stream, clock__kernel_ns(threads)));
}

API(int, __cudaLaunchKernel, const void *kernel, struct dim3 grid, struct dim3 block, void **args,
    size_t shared, void *stream)
{
	return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

API(int, cudaLaunchCooperativeKernel, const void *function, struct dim3 grid, struct dim3 block,
    void **args, size_t shared, void *stream)
{
	return cudaLaunchKernel(function, grid, block, args, shared, stream);
}

struct launch_config { /* cudaLaunchConfig_t, CUlaunchConfig: 56 bytes */
	struct dim3 grid, block;
	size_t shared;
	void *stream;
};

API(int, cudaLaunchKernelExC, const struct launch_config *config, const void *function, void **args)
{
	if (!config)
		return dryrun__result(CUDA_INVALID_VALUE);
	return cudaLaunchKernel(function, config->grid, config->block, args, config->shared,
				config->stream);
}

/* Launch configurations from <<<>>> for the kernel stub that follows; calls may nest in
 * arguments. */
#define MAX_NESTED 32

static __thread struct launch_config pending[MAX_NESTED];
static __thread unsigned int n_pending;

API(unsigned int, __cudaPushCallConfiguration, struct dim3 grid, struct dim3 block, size_t shared,
    void *stream)
{
	if (n_pending == MAX_NESTED)
		return 1;
	pending[n_pending++] = (struct launch_config){ grid, block, shared, stream };
	return 0;
}

API(int, __cudaPopCallConfiguration, struct dim3 *grid, struct dim3 *block, size_t *shared,
    void **stream)
{
	if (!n_pending)
		return dryrun__result(52); /* cudaErrorMissingConfiguration */
	n_pending--;
	*grid = pending[n_pending].grid;
	*block = pending[n_pending].block;
	*shared = pending[n_pending].shared;
	*stream = pending[n_pending].stream;
	return CUDA_OK;
}

API(int, __cudaGetKernel, const void **kernel, const void *function)
{
	*kernel = function;
	return CUDA_OK;
}

API(int, cudaGetKernel, const void **kernel, const void *function)
{
	*kernel = function;
	return CUDA_OK;
}

API(int, cudaGetFuncBySymbol, const void **function, const void *symbol)
{
	*function = symbol;
	return CUDA_OK;
}

struct function_attributes { /* cudaFuncAttributes: 144 bytes in 12 and 13 */
	size_t shared, constant, local;
	int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared,
		carveout;
	int rest[23];
};

_Static_assert(sizeof(struct function_attributes) == 144, "cudaFuncAttributes");

/*
 * Compiled version of a function. PyTorch's wheels run the code for 8.6 and 10.0 on 8.9 and 10.3.
 * CUB rejects versions that it was not compiled for ("invalid device function").
 */
static int code_version(void)
{
	const struct arch *a = props__arch();
	int version = a->major * 10 + a->minor;

	return version == 89 ? 86 : version == 103 ? 100 : version;
}

API(int, cudaFuncGetAttributes, struct function_attributes *out, const void *function)
{
	const struct arch *a = props__arch();

	*out = (struct function_attributes){
		.max_threads = 1024,
		.registers = 32,
		.ptx_version = code_version(),
		.binary_version = code_version(),
		.max_dynamic_shared = a->shared_block,
		.carveout = -1,
	};
	return CUDA_OK;
}

NO_EFFECT(cudaFuncSetAttribute)
NO_EFFECT(cudaFuncSetCacheConfig)
NO_EFFECT(cudaKernelSetAttributeForDevice)

static int blocks_for(int threads, size_t shared)
{
	const struct arch *a = props__arch();
	int n;

	if (threads < 1)
		threads = 1;
	threads = (threads + 31) / 32 * 32;
	n = a->threads / threads;
	if (n > a->blocks)
		n = a->blocks;
	if (shared && (size_t)n > (size_t)a->shared / (shared + (size_t)a->reserved))
		n = (int)((size_t)a->shared / (shared + (size_t)a->reserved));
	return n < 1 ? 1 : n;
}

/* Register use is unknown: only threads, blocks and shared memory limit occupancy here. */
API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *n, const void *function,
    int threads, size_t shared, unsigned int flags)
{
	*n = blocks_for(threads, shared);
	return CUDA_OK;
}

API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *n, const void *function, int threads,
    size_t shared)
{
	*n = blocks_for(threads, shared);
	return CUDA_OK;
}

API(int, cudaOccupancyAvailableDynamicSMemPerBlock, size_t *size, const void *function, int blocks,
    int threads)
{
	*size = (size_t)props__arch()->shared_block / (size_t)(blocks < 1 ? 1 : blocks);
	return CUDA_OK;
}

API(int, cudaOccupancyMaxActiveClusters, int *n, const void *function, const void *config)
{
	*n = props__processors() / 2;
	return CUDA_OK;
}

API(int, cudaOccupancyMaxPotentialClusterSize, int *n, const void *function, const void *config)
{
	*n = 8;
	return CUDA_OK;
}

/* ---- variables of modules: each has its own address; small copies to them are kept ---- */

#define SYMBOL_SPACE (1u << 20) /* distance between two variables */

API(int, cudaGetSymbolAddress, void **ptr, const void *symbol)
{
	static struct symbol {
		struct symbol *next;
		const void *symbol;
		int device;
		void *ptr;
	} * symbols;
	int device = dryrun__device(), err = CUDA_OK;
	struct symbol *s;
	void *fresh;

	if (!ptr || !symbol)
		return dryrun__result(CUDA_INVALID_VALUE);
	dryrun__lock();
	for (s = symbols; s && (s->symbol != symbol || s->device != device); s = s->next)
		;
	dryrun__unlock();
	if (!s) {
		/* A variable is in its module's memory, part of the context. The context's size is
		 * a guess, so the variable is charged separately. */
		err = dryrun__alloc(device, SYMBOL_SPACE - 1, &fresh);
		s = err ? NULL : malloc(sizeof(*s));
		if (!err && !s) {
			dryrun__free(fresh);
			err = CUDA_OUT_OF_MEMORY;
		}
		if (err)
			return dryrun__result(err);
		dryrun__lock();
		*s = (struct symbol){ symbols, symbol, device, fresh };
		symbols = s;
		dryrun__unlock();
	}
	*ptr = s->ptr;
	return CUDA_OK;
}

API(int, cudaMemcpyToSymbolAsync, const void *symbol, const void *from, size_t size, size_t offset,
    int kind, void *stream)
{
	void *to;
	int err = cudaGetSymbolAddress(&to, symbol);

	if (err)
		return err;
	if (offset > SYMBOL_SPACE || size > SYMBOL_SPACE - offset)
		return dryrun__result(CUDA_NOT_SUPPORTED);
	dryrun__copy((char *)to + offset, from, size);
	return CUDA_OK;
}

API(int, cudaMemcpyToSymbol, const void *symbol, const void *from, size_t size, size_t offset,
    int kind)
{
	return cudaMemcpyToSymbolAsync(symbol, from, size, offset, kind, NULL);
}

API(int, cudaMemcpyFromSymbol, void *to, const void *symbol, size_t size, size_t offset, int kind)
{
	void *from;
	int err = cudaGetSymbolAddress(&from, symbol);

	if (err)
		return err;
	if (offset > SYMBOL_SPACE || size > SYMBOL_SPACE - offset)
		return dryrun__result(CUDA_NOT_SUPPORTED);
	dryrun__copy_for(__builtin_return_address(0), to, (const char *)from + offset, size);
	return CUDA_OK;
}

/* ---- the profiler: no effect ---- */

NO_EFFECT(cudaProfilerStart)
NO_EFFECT(cudaProfilerStop)
