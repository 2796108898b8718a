/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/estimate.h"

#include <string.h>
#include <strings.h>

#define MIB (1ULL << 20)

#define QUERY "deviceQuery, "
#define TORCH "torch.cuda.get_device_properties, "

static const struct device_kind kinds[] = {
	{ "h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 85017755648,
	  QUERY "driver of CUDA 13.0; 81008 to 81106 MiB with others" },
	{ "h200", "NVIDIA H200", 9, 0, 132, 143156 * MIB, TORCH "to the MiB" },
	{ "a100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 84974239744,
	  QUERY "driver of CUDA 12.4; 81051 to 81152 MiB with others" },
	{ "a100-40g", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 42298834944,
	  QUERY "driver of CUDA 12.2; 40437 MiB with others" },
	{ "b200", "NVIDIA B200", 10, 0, 148, 182631 * MIB,
	  TORCH "2.8, to the MiB; 182642 MiB with others" },
	{ "l40s", "NVIDIA L40S", 8, 9, 142, 47576711168,
	  QUERY "driver of CUDA 12.4; 45450 to 45589 MiB with others" },
	{ "l4", "NVIDIA L4", 8, 9, 58, 22478 * MIB,
	  "PyTorch's out of memory, to 0.01 GiB; 22491 to 22559 MiB with others" },
	{ "a10g", "NVIDIA A10G", 8, 6, 80, 22587 * MIB, TORCH "2.15, to the MiB" },
	{ "t4", "Tesla T4", 7, 5, 40, 14930 * MIB,
	  TORCH "2.2, to the MiB; 15079 to 15109 MiB with others" },
	{ "v100", "Tesla V100-SXM2-16GB", 7, 0, 80, 16130 * MIB,
	  TORCH "to the MiB; 16151 to 16160 MiB with others" },
	{ "v100-32g", "Tesla V100-PCIE-32GB", 7, 0, 80, 32510 * MIB, TORCH "to the MiB" },
	{ "5090", "NVIDIA GeForce RTX 5090", 12, 0, 170, 33660534784,
	  QUERY "driver of CUDA 13.0; 32109 to 32120 MiB with others" },
	{ "4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 25386352640,
	  QUERY "driver of CUDA 12.4; 24084 to 24217 MiB with others" },
	{ "3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 25411846144,
	  QUERY "driver of CUDA 11.4; 24238 to 24268 MiB with others" },
	{ "6000-ada", "NVIDIA RTX 6000 Ada Generation", 8, 9, 142, 50865307648,
	  "cudaMemGetInfo, CUDA 13.0" },
};

/* Bytes in use by the process minus PyTorch's reserved bytes, for the newest CUDA with a report.
 * Sources: PyTorch's out-of-memory messages (to 0.01 GiB) or nvidia-smi. */
static const struct {
	const char *option;
	int cuda; /* major * 10 + minor of PyTorch's CUDA; 0: not reported */
	unsigned mib;
	enum figure_source source;
	const char *from;
} contexts[] = {
	{ "h100", 128, 600, FIGURE_REPORTED,
	  "PyTorch's out of memory in a diffusion model on an H100, CUDA 12.8; 510 MiB before the "
	  "first kernels" },
	{ "h200", 0, 600, FIGURE_ASSUMED, "as the H100, which has the same multiprocessors" },
	{ "a100", 0, 512, FIGURE_REPORTED,
	  "PyTorch's out of memory in inference, on an A100 80 GB by its size" },
	{ "a100-40g", 0, 512, FIGURE_ASSUMED, "as the A100 80 GB" },
	{ "b200", 0, 712, FIGURE_REPORTED,
	  "PyTorch's out of memory in a small script, on a B200 by its size" },
	{ "l40s", 0, 420, FIGURE_REPORTED,
	  "PyTorch's out of memory while a model was loaded on an L40S; 507 MiB in inference on an "
	  "L40" },
	{ "l4", 0, 211, FIGURE_REPORTED,
	  "PyTorch's out of memory in inference, on an L4 by its size" },
	{ "a10g", 0, 256, FIGURE_ASSUMED,
	  "as the RTX 3090, which is of the same generation and size" },
	{ "t4", 0, 164, FIGURE_REPORTED, "PyTorch's out of memory on a T4; 111 MiB in inference" },
	{ "v100", 0, 512, FIGURE_ASSUMED, "as the A100: nothing with CUDA 12 was found" },
	{ "v100-32g", 0, 512, FIGURE_ASSUMED, "as the A100: nothing with CUDA 12 was found" },
	{ "5090", 0, 595, FIGURE_REPORTED,
	  "PyTorch's out of memory in a diffusion model on an RTX 5090" },
	{ "4090", 0, 440, FIGURE_REPORTED,
	  "PyTorch's out of memory in training, on an RTX 4090 by its size" },
	{ "3090", 128, 256, FIGURE_REPORTED,
	  "nvidia-smi, a context alone on an RTX 3090, CUDA 12.8; up to 315 MiB in inference" },
	{ "6000-ada", 130, 426, FIGURE_REPORTED,
	  "nvidia-smi, a context alone on an RTX 6000 Ada, PyTorch 2.10 with CUDA 13.0" },
};

const struct device_kind *device_kinds(size_t *n)
{
	*n = sizeof(kinds) / sizeof(*kinds);
	return kinds;
}

const struct device_kind *device_kind__find(const char *text)
{
	static const struct {
		const char *alias, *option;
	} aliases[] = { { "a100-80g", "a100" }, { "h100-80g", "h100" }, { "v100-16g", "v100" } };

	/* "RTX-4090" and "rtx4090" are "4090". */
	if (!strncasecmp(text, "rtx", 3))
		text += text[3] == '-' ? 4 : 3;
	for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++)
		if (!strcasecmp(text, aliases[i].alias))
			text = aliases[i].option;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcasecmp(text, kinds[i].option))
			return &kinds[i];
	return NULL;
}

const struct device_kind *device_kind__named(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	return NULL;
}

const char *figure_source__name(enum figure_source source)
{
	switch (source) {
	case FIGURE_ASSUMED:
		return "assumed";
	case FIGURE_REPORTED:
		return "reported";
	case FIGURE_MEASURED:
		return "measured";
	case FIGURE_UNKNOWN:
		break;
	}
	return "unknown";
}

int device_kind__cuda_version(const char *torch)
{
	const char *cu = torch ? strstr(torch, "+cu") : NULL;
	unsigned n; /* 130 for CUDA 13.0 */
	char rest = '\0';

	if (!cu || sscanf(cu + 3, "%3u%c", &n, &rest) < 1 || (rest && rest != '.') || n < 90)
		return 0;
	return (int)(n / 10 * 1000 + n % 10 * 10);
}

bool device_kind__context(const struct device_kind *kind, int cuda_version,
			  struct device_figure *ret)
{
	int cuda = cuda_version / 1000 * 10 + cuda_version % 1000 / 10;

	*ret = (struct device_figure){ 0, FIGURE_UNKNOWN, "nothing was found" };
	if (!kind) {
		*ret = (struct device_figure){ 512 * MIB, FIGURE_ASSUMED,
					       "between those of an L4 and a B200" };
		return true;
	}
	for (size_t i = 0; i < sizeof(contexts) / sizeof(*contexts); i++) {
		if (strcmp(contexts[i].option, kind->option))
			continue;
		*ret = (struct device_figure){ contexts[i].mib * MIB, contexts[i].source,
					       contexts[i].from };
		if (cuda && contexts[i].cuda != cuda)
			ret->source = FIGURE_ASSUMED;
		return true;
	}
	return false;
}

bool device_kind__nccl(const struct device_kind *kind, unsigned n_ranks, struct device_figure *ret)
{
	bool a100 = kind && !strcmp(kind->option, "a100");

	*ret = (struct device_figure){ 0, FIGURE_UNKNOWN, "no figure for so many ranks was found" };
	if (n_ranks < 2 || n_ranks > 4)
		return false;
	ret->bytes = (n_ranks == 2 ? 544 : 688) * MIB;
	ret->source = a100 ? FIGURE_REPORTED : FIGURE_ASSUMED;
	ret->from = "4 A100 with NVLink, all-reduce alone";
	return true;
}
