// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* cuBLAS and cuBLASLt: matrix products succeed and do nothing. */
#include "dryrun.h"

#include <stdlib.h>
#include <string.h>

#define OK		0
#define ALLOC_FAILED	3
#define INVALID_VALUE	7
#define ALGORITHM_SIZE	96 /* cublasLtMatmulHeuristicResult_t */

static int make(void **out)
{
	*out = calloc(1, 64);
	return *out ? OK : ALLOC_FAILED;
}

#define MAKES(name) API(int, name, void **out) { return make(out); }
#define ENDS(name) API(int, name, void *what) { free(what); return OK; }
#define DOES(name) API(int, name, void *handle) { return OK; }

MAKES(cublasCreate_v2)
ENDS(cublasDestroy_v2)
DOES(cublasSetStream_v2)
DOES(cublasSetWorkspace_v2)
DOES(cublasSetMathMode)
DOES(cublasSetPointerMode_v2)
DOES(cublasSetAtomicsMode)
DOES(cublasSgemm_v2)
DOES(cublasGemmEx)
DOES(cublasGemmStridedBatchedEx)
DOES(cublasSgemmStridedBatched)
MAKES(cublasLtCreate)
ENDS(cublasLtDestroy)
MAKES(cublasLtMatmulDescCreate)
ENDS(cublasLtMatmulDescDestroy)
DOES(cublasLtMatmulDescSetAttribute)
MAKES(cublasLtMatmulPreferenceCreate)
ENDS(cublasLtMatmulPreferenceDestroy)
DOES(cublasLtMatmulPreferenceSetAttribute)
MAKES(cublasLtMatrixLayoutCreate)
ENDS(cublasLtMatrixLayoutDestroy)
DOES(cublasLtMatrixLayoutSetAttribute)
DOES(cublasLtMatmul)

API(int, cublasGetMathMode, void *handle, int *mode)
{
	*mode = 0;
	return OK;
}

API(int, cublasGetPointerMode_v2, void *handle, int *mode)
{
	*mode = 0;
	return OK;
}

API(int, cublasLtMatmulAlgoGetHeuristic, void *handle, void *op, void *a, void *b, void *c, void *d, void *preference, int wanted, void *results, int *n)
{
	if (wanted < 1)
		return INVALID_VALUE;
	memset(results, 0, ALGORITHM_SIZE);
	*n = 1;
	return OK;
}
