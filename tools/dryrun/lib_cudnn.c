// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cuDNN 8 and 9 as used by PyTorch: convolutions through the backend API and the legacy API, batch
 * norm, recurrent networks, CTC, grid sampling. Layouts and numbers: cudnn_graph.h, cudnn_ops.h,
 * cudnn_cnn.h, cudnn_adv.h.
 *
 * The real library chooses a convolution's workspace by measurements on the device. It affects the
 * peak almost one to one and cannot be known here. MEMTRACE_DRYRUN_CUDNN_WORKSPACE sets it, and the
 * log notes its use.
 */
#include "lib.h"

#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIMS 8 /* CUDNN_DIM_MAX */

enum { TRAINING = 1 };					   /* cudnnForwardMode_t */
enum { BIAS_NONE, BIAS_INPUT, BIAS_BOTH, BIAS_RECURRENT }; /* cudnnRNNBiasMode_t */

/* A descriptor of any kind: the values that later calls need. */
struct descriptor {
	int type, format; /* type of the elements; format of a filter */
	int n;
	int dims[MAX_DIMS], strides[MAX_DIMS];
	/* parameters of a recurrent network */
	int cell, bias, directions, skip_input, input, hidden, projected, layers;
	/* shape of a recurrent network's data */
	int length, batch, width;
	/* backend: a convolution, or contains one */
	bool convolution;
};

static int version(struct dl_phdr_info *info, size_t size, void *major)
{
	const char *name = strrchr(info->dlpi_name, '/');

	return info->dlpi_name &&
	       sscanf(name ? name + 1 : info->dlpi_name, "libcudnn.so.%d", (int *)major) == 1;
}

static int by_version(int in_8, int in_9)
{
	static atomic_int known;
	int major = atomic_load(&known);

	if (!major) {
		/* The name in PyTorch's wheels. A library of another name counts as the newest. */
		if (!dl_iterate_phdr(version, &major))
			return in_9;
		atomic_store(&known, major);
	}
	return major < 9 ? in_8 : in_9;
}

int lib__cudnn_not_supported(void)
{
	return by_version(9, 3000);
}

int lib__cudnn_bad_param(void)
{
	return by_version(3, 2000);
}

static int alloc_failed(void)
{
	return by_version(2, 4003);
}

/* Assumed workspace of a convolution in bytes; logged once. */
static size_t workspace(void)
{
	static atomic_bool told;
	size_t size = dryrun__config()->cudnn_workspace;

	if (!atomic_exchange(&told, true))
		dryrun__log("assumed cudnn_workspace %zu", size);
	return size;
}

/* Returns a guess for a size that only the real library knows. */
static int guess(atomic_bool *told, const char *what, size_t *to, uint64_t size)
{
	if (!to)
		return lib__cudnn_bad_param();
	if (!atomic_exchange(told, true))
		dryrun__unmodelled(what);
	*to = size;
	return 0;
}

#define GUESS(what, to, size)                                                                      \
	({                                                                                         \
		static atomic_bool told_;                                                          \
		guess(&told_, what, to, size);                                                     \
	})

/* ---- handles and descriptors ---- */

struct cudnn {
	void *stream;
};

API(int, cudnnCreate, struct cudnn **handle)
{
	struct cudnn *h = handle ? calloc(1, sizeof(*h)) : NULL;

	if (!h)
		return handle ? alloc_failed() : lib__cudnn_bad_param();
	*handle = h;
	return 0;
}

API(int, cudnnDestroy, struct cudnn *handle)
{
	free(handle);
	return 0;
}

API(int, cudnnSetStream, struct cudnn *handle, void *stream)
{
	if (!handle)
		return lib__cudnn_bad_param();
	handle->stream = stream;
	return 0;
}

API(int, cudnnGetStream, struct cudnn *handle, void **stream)
{
	if (!handle || !stream)
		return lib__cudnn_bad_param();
	*stream = handle->stream;
	return 0;
}

static int create(struct descriptor **d)
{
	struct descriptor *fresh = d ? calloc(1, sizeof(*fresh)) : NULL;

	if (!fresh)
		return d ? alloc_failed() : lib__cudnn_bad_param();
	*d = fresh;
	return 0;
}

#define DESCRIPTOR(kind)                                                                           \
	API(int, cudnnCreate##kind##Descriptor, struct descriptor **d)                             \
	{                                                                                          \
		return create(d);                                                                  \
	}                                                                                          \
	API(int, cudnnDestroy##kind##Descriptor, struct descriptor *d)                             \
	{                                                                                          \
		free(d);                                                                           \
		return 0;                                                                          \
	}

DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(Dropout)
DESCRIPTOR(Pooling)
DESCRIPTOR(SpatialTransformer)
DESCRIPTOR(CTCLoss)
DESCRIPTOR(RNN)
DESCRIPTOR(RNNData)

static int set_dims(struct descriptor *d, int type, int format, int n, const int *dims,
		    const int *strides)
{
	if (!d || !dims || n < 1 || n > MAX_DIMS)
		return lib__cudnn_bad_param();
	d->type = type;
	d->format = format;
	d->n = n;
	memcpy(d->dims, dims, (size_t)n * sizeof(int));
	if (strides)
		memcpy(d->strides, strides, (size_t)n * sizeof(int));
	return 0;
}

static int get_dims(const struct descriptor *d, int wanted, int *type, int *format, int *n,
		    int *dims, int *strides)
{
	if (!d || wanted < 0)
		return lib__cudnn_bad_param();
	if (wanted > d->n)
		wanted = d->n;
	if (type)
		*type = d->type;
	if (format)
		*format = d->format;
	if (n)
		*n = d->n;
	if (dims)
		memcpy(dims, d->dims, (size_t)wanted * sizeof(int));
	if (strides)
		memcpy(strides, d->strides, (size_t)wanted * sizeof(int));
	return 0;
}

API(int, cudnnSetTensorNdDescriptor, struct descriptor *d, int type, int n, const int *dims,
    const int *strides)
{
	return set_dims(d, type, 0, n, dims, strides);
}

API(int, cudnnGetTensorNdDescriptor, const struct descriptor *d, int wanted, int *type, int *n,
    int *dims, int *strides)
{
	return get_dims(d, wanted, type, NULL, n, dims, strides);
}

API(int, cudnnSetFilterNdDescriptor, struct descriptor *d, int type, int format, int n,
    const int *dims)
{
	return set_dims(d, type, format, n, dims, NULL);
}

API(int, cudnnGetFilterNdDescriptor, const struct descriptor *d, int wanted, int *type, int *format,
    int *n, int *dims)
{
	return get_dims(d, wanted, type, format, n, dims, NULL);
}

NO_EFFECT(cudnnSetConvolutionNdDescriptor)
NO_EFFECT(cudnnSetConvolutionGroupCount)
NO_EFFECT(cudnnSetConvolutionMathType)
NO_EFFECT(cudnnSetConvolutionReorderType)
NO_EFFECT(cudnnSetActivationDescriptor)
NO_EFFECT(cudnnSetPooling2dDescriptor)
NO_EFFECT(cudnnSetPoolingNdDescriptor)
NO_EFFECT(cudnnSetSpatialTransformerNdDescriptor)
NO_EFFECT(cudnnSetCTCLossDescriptor)
NO_EFFECT(cudnnSetCTCLossDescriptorEx)
NO_EFFECT(cudnnSetCTCLossDescriptor_v8)
NO_EFFECT(cudnnSetCTCLossDescriptor_v9)
NO_EFFECT(cudnnSetDropoutDescriptor)
NO_EFFECT(cudnnRestoreDropoutDescriptor)

/* ---- work in the caller's memory ---- */

NO_EFFECT(cudnnConvolutionForward)
NO_EFFECT(cudnnConvolutionBackwardData)
NO_EFFECT(cudnnConvolutionBackwardFilter)
NO_EFFECT(cudnnConvolutionBackwardBias)
NO_EFFECT(cudnnConvolutionBiasActivationForward)
NO_EFFECT(cudnnBatchNormalizationForwardInference)
NO_EFFECT(cudnnBatchNormalizationForwardTraining)
NO_EFFECT(cudnnBatchNormalizationForwardTrainingEx)
NO_EFFECT(cudnnBatchNormalizationBackward)
NO_EFFECT(cudnnBatchNormalizationBackwardEx)
NO_EFFECT(cudnnPoolingForward)
NO_EFFECT(cudnnPoolingBackward)
NO_EFFECT(cudnnSpatialTfGridGeneratorForward)
NO_EFFECT(cudnnSpatialTfGridGeneratorBackward)
NO_EFFECT(cudnnSpatialTfSamplerForward)
NO_EFFECT(cudnnSpatialTfSamplerBackward)
NO_EFFECT(cudnnCTCLoss)
NO_EFFECT(cudnnCTCLoss_v8)
NO_EFFECT(cudnnRNNForward)
NO_EFFECT(cudnnRNNForwardInference)
NO_EFFECT(cudnnRNNForwardTraining)
NO_EFFECT(cudnnRNNBackwardData)
NO_EFFECT(cudnnRNNBackwardData_v8)
NO_EFFECT(cudnnRNNBackwardWeights)
NO_EFFECT(cudnnRNNBackwardWeights_v8)

/* ---- convolutions: the legacy API ---- */

/* cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t, which have one layout. */
struct performance {
	int algorithm, status;
	float time;
	size_t memory;
	int determinism, math;
	int reserved[3];
};
_Static_assert(sizeof(struct performance) == 48, "cudnnConvolutionFwdAlgoPerf_t");

static int one_algorithm(int wanted, int *n, struct performance *results)
{
	if (wanted < 1 || !n || !results)
		return lib__cudnn_bad_param();
	memset(results, 0, sizeof(*results));
	/* in each direction: implicit GEMM with precomputed indices, or algorithm 1; deterministic */
	results->algorithm = 1;
	results->memory = workspace();
	results->determinism = 1;
	*n = 1;
	return 0;
}

#define ALGORITHMS(direction)                                                                      \
	API(int, cudnnGetConvolution##direction##Algorithm_v7, void *h, void *a, void *b, void *c, \
	    void *d, int wanted, int *n, struct performance *results)                              \
	{                                                                                          \
		return one_algorithm(wanted, n, results);                                          \
	}                                                                                          \
	API(int, cudnnFindConvolution##direction##AlgorithmEx, void *h, void *a, void *x, void *b, \
	    void *y, void *c, void *d, void *z, int wanted, int *n, struct performance *results)   \
	{                                                                                          \
		return one_algorithm(wanted, n, results);                                          \
	}                                                                                          \
	API(int, cudnnGetConvolution##direction##WorkspaceSize, void *h, void *a, void *b,         \
	    void *c, void *d, int algorithm, size_t *size)                                         \
	{                                                                                          \
		if (!size)                                                                         \
			return lib__cudnn_bad_param();                                             \
		*size = workspace();                                                               \
		return 0;                                                                          \
	}

ALGORITHMS(Forward)
ALGORITHMS(BackwardData)
ALGORITHMS(BackwardFilter)

/* ---- the backend API ---- */

enum { /* cudnnBackendDescriptorType_t */
       CONVOLUTION_FORWARD = 10,
       CONVOLUTION_BACKWARD_FILTER = 11,
       CONVOLUTION_BACKWARD_DATA = 12,
};
enum { /* cudnnBackendAttributeName_t */
       HEURISTIC_RESULTS = 202,
       CONFIG_ENGINE = 300,
       PLAN_WORKSPACE = 402,
};
enum { TYPE_INT64 = 3, TYPE_DESCRIPTOR = 15, TYPE_INT32 = 23 }; /* cudnnBackendAttributeType_t */

API(int, cudnnBackendCreateDescriptor, int type, struct descriptor **d)
{
	int err = create(d);

	if (!err)
		(*d)->convolution = type == CONVOLUTION_FORWARD ||
				    type == CONVOLUTION_BACKWARD_FILTER ||
				    type == CONVOLUTION_BACKWARD_DATA;
	return err;
}

API(int, cudnnBackendDestroyDescriptor, struct descriptor *d)
{
	free(d);
	return 0;
}

/* A graph with a convolution is a convolution, and so are engines and plans that refer to it. */
API(int, cudnnBackendSetAttribute, struct descriptor *d, int name, int type, int64_t n,
    struct descriptor *const *elements)
{
	if (!d || n < 0 || (n && !elements))
		return lib__cudnn_bad_param();
	if (type == TYPE_DESCRIPTOR)
		for (int64_t i = 0; i < n; i++)
			d->convolution |= elements[i] && elements[i]->convolution;
	return 0;
}

/*
 * Heuristics return one configuration, a configuration one engine, in the caller's descriptors.
 * Other numbers are 0, other lists empty.
 */
API(int, cudnnBackendGetAttribute, struct descriptor *d, int name, int type, int64_t wanted,
    int64_t *n, void *elements)
{
	struct descriptor **results = elements;
	int64_t count = type == TYPE_INT64 || type == TYPE_INT32 || name == HEURISTIC_RESULTS ||
			name == CONFIG_ENGINE;

	if (!d || wanted < 0)
		return lib__cudnn_bad_param();
	if (n)
		*n = count;
	if (!count || !wanted || !elements) /* the caller asks for the count only */
		return 0;
	if (type == TYPE_DESCRIPTOR) {
		if (!results[0])
			return lib__cudnn_bad_param();
		results[0]->convolution = d->convolution;
	} else if (type == TYPE_INT32) {
		*(int32_t *)elements = 0;
	} else if (type == TYPE_INT64) {
		*(int64_t *)elements = 0;
		if (name == PLAN_WORKSPACE && d->convolution)
			*(int64_t *)elements = (int64_t)workspace();
		else if (name == PLAN_WORKSPACE)
			dryrun__unmodelled("cuDNN graph without convolution: workspace");
	}
	return 0;
}

NO_EFFECT(cudnnBackendFinalize)
NO_EFFECT(cudnnBackendInitialize)
NO_EFFECT(cudnnBackendExecute)

/* ---- batch norm: without a fused activation the real library needs little or no memory ---- */

API(int, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, void *h, int mode,
    int operations, void *x, void *z, void *y, void *scale, void *activation, size_t *size)
{
	return GUESS("cuDNN batch norm: workspace", size, 0);
}

API(int, cudnnGetBatchNormalizationBackwardExWorkspaceSize, void *h, int mode, int operations,
    void *x, void *y, void *dy, void *dz, void *dx, void *scale, void *activation, size_t *size)
{
	return GUESS("cuDNN batch norm: workspace", size, 0);
}

API(int, cudnnGetBatchNormalizationTrainingExReserveSpaceSize, void *h, int mode, int operations,
    void *activation, void *x, size_t *size)
{
	return GUESS("cuDNN batch norm: reserve", size, 0);
}

/* ---- CTC, dropout ---- */

API(int, cudnnGetCTCLossWorkspaceSize, void *h, void *probabilities, void *gradients,
    const int *labels, const int *label_lengths, const int *lengths, int algorithm, void *d,
    size_t *size)
{
	return GUESS("cuDNN CTC: workspace", size, 0);
}

API(int, cudnnGetCTCLossWorkspaceSize_v8, void *h, int algorithm, void *d, void *probabilities,
    void *gradients, size_t *size)
{
	return GUESS("cuDNN CTC: workspace", size, 0);
}

API(int, cudnnDropoutGetStatesSize, void *h, size_t *size)
{
	return GUESS("cuDNN dropout: states", size, 0);
}

/* ---- recurrent networks ---- */

static unsigned int type_size(int type)
{
	switch (type) {
	case 1: /* double */
		return 8;
	case 2: /* half, bfloat16 */
	case 9:
		return 2;
	default:
		return 4;
	}
}

static int gates(const struct descriptor *r)
{
	return r->cell == 2 /* LSTM */ ? 4 : r->cell == 3 /* GRU */ ? 3 : 1;
}

/* Limits the numbers of a network, so that products fit into 64 bits. */
static bool in_limits(const struct descriptor *r)
{
	return r && r->input >= 0 && r->input < 1 << 20 && r->hidden > 0 && r->hidden < 1 << 20 &&
	       r->projected > 0 && r->projected <= r->hidden && r->layers > 0 &&
	       r->layers < 1 << 12;
}

static bool has_projection(const struct descriptor *r)
{
	return r->projected != r->hidden;
}

static int input_width(const struct descriptor *r, int pseudo_layer)
{
	if (pseudo_layer < r->directions)
		return r->skip_input ? 0 : r->input;
	return r->directions * r->projected;
}

static uint64_t layer_matrices(const struct descriptor *r, int pseudo_layer)
{
	uint64_t g = gates(r), h = r->hidden, p = r->projected;

	return g * h * input_width(r, pseudo_layer) + g * h * p + (has_projection(r) ? p * h : 0);
}

static uint64_t layer_biases(const struct descriptor *r)
{
	return (uint64_t)gates(r) * r->hidden *
	       (r->bias == BIAS_NONE   ? 0
		: r->bias == BIAS_BOTH ? 2
				       : 1);
}

/* Number of elements: matrices layer by layer, then biases. */
static uint64_t weights(const struct descriptor *r)
{
	uint64_t n = 0;

	for (int i = 0; i < r->layers * r->directions; i++)
		n += layer_matrices(r, i) + layer_biases(r);
	return n;
}

struct part {
	uint64_t at;	   /* offset in the weights, in elements */
	int rows, columns; /* 0 rows: absent */
};

/* Finds matrix and bias of a linear layer: input to gates, state to gates, or the projection. */
static void find_part(const struct descriptor *r, int pseudo_layer, int linear, struct part *matrix,
		      struct part *bias)
{
	int g = gates(r), h = r->hidden, p = r->projected, width = input_width(r, pseudo_layer);
	uint64_t at = 0, biases = 0;

	*matrix = *bias = (struct part){ 0 };
	for (int i = 0; i < r->layers * r->directions; i++)
		biases += layer_matrices(r, i);
	for (int i = 0; i < pseudo_layer; i++)
		at += layer_matrices(r, i);
	biases += (uint64_t)pseudo_layer * layer_biases(r);
	if (linear < g) {
		if (width)
			*matrix = (struct part){ at + (uint64_t)linear * h * width, h, width };
		if (r->bias == BIAS_INPUT || r->bias == BIAS_BOTH)
			*bias = (struct part){ biases + (uint64_t)linear * h, h, 1 };
	} else if (linear < 2 * g) {
		*matrix = (struct part){
			at + (uint64_t)g * h * width + (uint64_t)(linear - g) * h * p, h, p
		};
		if (r->bias == BIAS_RECURRENT || r->bias == BIAS_BOTH)
			*bias = (struct part){
				biases + (uint64_t)(r->bias == BIAS_BOTH ? linear : linear - g) * h,
				h, 1
			};
	} else if (linear == 2 * g && has_projection(r)) {
		*matrix = (struct part){ at + (uint64_t)g * h * (width + p), p, h };
	}
}

static void give_part(const struct descriptor *r, const struct part *part, const char *base,
		      struct descriptor *d, void **at)
{
	if (at)
		*at = part->rows && base ? (void *)(base + part->at * type_size(r->type)) : NULL;
	if (d) {
		d->type = r->type;
		d->format = 0;
		d->n = part->rows ? 3 : 0;
		d->dims[0] = 1;
		d->dims[1] = part->rows;
		d->dims[2] = part->columns;
		d->strides[0] = part->rows * part->columns;
		d->strides[1] = part->columns;
		d->strides[2] = 1;
	}
}

API(int, cudnnSetRNNDescriptor_v8, struct descriptor *r, int algorithm, int cell, int bias,
    int direction, int input_mode, int type, int precision, int math, int input, int hidden,
    int projected, int layers, void *dropout, unsigned int flags)
{
	if (!r)
		return lib__cudnn_bad_param();
	*r = (struct descriptor){
		.type = type,
		.cell = cell,
		.bias = bias,
		.directions = direction ? 2 : 1,
		.skip_input = input_mode,
		.input = input,
		.hidden = hidden,
		.projected = projected,
		.layers = layers,
	};
	return in_limits(r) ? 0 : lib__cudnn_bad_param();
}

API(int, cudnnSetRNNDataDescriptor, struct descriptor *d, int type, int layout, int length,
    int batch, int width, const int *lengths, void *padding)
{
	if (!d || length < 0 || batch < 0)
		return lib__cudnn_bad_param();
	d->type = type;
	d->length = length;
	d->batch = batch;
	d->width = width;
	return 0;
}

API(int, cudnnGetRNNWeightSpaceSize, void *h, const struct descriptor *r, size_t *size)
{
	if (!in_limits(r) || !size)
		return lib__cudnn_bad_param();
	*size = weights(r) * type_size(r->type);
	return 0;
}

API(int, cudnnGetRNNWeightParams, void *h, const struct descriptor *r, int pseudo_layer,
    size_t size, const char *base, int linear, struct descriptor *matrix_desc, void **matrix_at,
    struct descriptor *bias_desc, void **bias_at)
{
	struct part matrix, bias;

	if (!in_limits(r) || pseudo_layer < 0 || pseudo_layer >= r->layers * r->directions ||
	    linear < 0)
		return lib__cudnn_bad_param();
	find_part(r, pseudo_layer, linear, &matrix, &bias);
	give_part(r, &matrix, base, matrix_desc, matrix_at);
	give_part(r, &bias, base, bias_desc, bias_at);
	return 0;
}

/* Bytes of gates and states of all layers and steps. cuDNN's real size is not documented. */
static uint64_t rnn_reserve(const struct descriptor *r, uint64_t length, uint64_t batch)
{
	return length * batch * (gates(r) + 2) * r->hidden * r->directions * r->layers *
	       type_size(r->type);
}

static uint64_t rnn_workspace(const struct descriptor *r, uint64_t length, uint64_t batch)
{
	return length * batch * gates(r) * r->hidden * r->directions * type_size(r->type);
}

API(int, cudnnGetRNNTempSpaceSizes, void *h, const struct descriptor *r, int mode,
    const struct descriptor *x, size_t *size, size_t *reserve)
{
	if (!in_limits(r) || !x)
		return lib__cudnn_bad_param();
	if (size)
		GUESS("cuDNN recurrent network: workspace", size,
		      rnn_workspace(r, x->length, x->batch));
	if (reserve)
		GUESS("cuDNN recurrent network: reserve", reserve,
		      mode == TRAINING ? rnn_reserve(r, x->length, x->batch) : 0);
	return 0;
}

/* Before cuDNN 9 the input width is dimension 1 of the descriptor in each later call. */

API(int, cudnnSetRNNDescriptor_v6, void *h, struct descriptor *r, int hidden, int layers,
    void *dropout, int input_mode, int direction, int cell, int algorithm, int precision)
{
	return cudnnSetRNNDescriptor_v8(r, algorithm, cell, BIAS_BOTH, direction, input_mode,
					precision, precision, 0, 0, hidden, hidden, layers, dropout,
					0);
}

API(int, cudnnSetRNNProjectionLayers, void *h, struct descriptor *r, int recurrent, int output)
{
	if (!r || recurrent < 1 || recurrent > r->hidden)
		return lib__cudnn_bad_param();
	r->projected = recurrent;
	return 0;
}

NO_EFFECT(cudnnSetRNNMatrixMathType)

/* Copies the network and adds the caller's other arguments. */
static int complete(struct descriptor *to, const struct descriptor *r, const struct descriptor *x,
		    int type)
{
	if (!r || !x || x->n < 2)
		return lib__cudnn_bad_param();
	*to = *r;
	to->input = x->dims[1];
	to->type = type;
	return in_limits(to) ? 0 : lib__cudnn_bad_param();
}

API(int, cudnnGetRNNParamsSize, void *h, const struct descriptor *r, const struct descriptor *x,
    size_t *size, int type)
{
	struct descriptor whole;
	int err = complete(&whole, r, x, type);

	return err ?: cudnnGetRNNWeightSpaceSize(h, &whole, size);
}

API(int, cudnnGetRNNLinLayerMatrixParams, void *h, const struct descriptor *r, int pseudo_layer,
    const struct descriptor *x, const struct descriptor *w, const char *base, int linear,
    struct descriptor *desc, void **at)
{
	struct descriptor whole;
	int err = complete(&whole, r, x, w ? w->type : 0);

	return err
		       ?: cudnnGetRNNWeightParams(h, &whole, pseudo_layer, 0, base, linear, desc,
						  at, NULL, NULL);
}

API(int, cudnnGetRNNLinLayerBiasParams, void *h, const struct descriptor *r, int pseudo_layer,
    const struct descriptor *x, const struct descriptor *w, const char *base, int linear,
    struct descriptor *desc, void **at)
{
	struct descriptor whole;
	int err = complete(&whole, r, x, w ? w->type : 0);

	return err
		       ?: cudnnGetRNNWeightParams(h, &whole, pseudo_layer, 0, base, linear, NULL,
						  NULL, desc, at);
}

static int temporary(const struct descriptor *r, int length, const struct descriptor *const *x,
		     size_t *size, bool reserve)
{
	struct descriptor whole;
	int err;

	if (!x || length < 0)
		return lib__cudnn_bad_param();
	err = complete(&whole, r, x[0], x[0] ? x[0]->type : 0);
	if (err)
		return err;
	return GUESS("cuDNN recurrent network: workspace and reserve", size,
		     reserve ? rnn_reserve(&whole, length, x[0]->dims[0])
			     : rnn_workspace(&whole, length, x[0]->dims[0]));
}

API(int, cudnnGetRNNWorkspaceSize, void *h, const struct descriptor *r, int length,
    const struct descriptor *const *x, size_t *size)
{
	return temporary(r, length, x, size, false);
}

API(int, cudnnGetRNNTrainingReserveSize, void *h, const struct descriptor *r, int length,
    const struct descriptor *const *x, size_t *size)
{
	return temporary(r, length, x, size, true);
}
