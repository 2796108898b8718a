/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/host.h"

#include <stddef.h>

const char *host_part__name(unsigned part)
{
	static const char *const names[HOST_PART_NR] = {
		[HOST_TOTAL] = "rss",
		[HOST_PINNED] = "pinned",
		[HOST_SHARED_LOADER] = "shared_loader",
		[HOST_SHARED_NCCL] = "shared_nccl",
		[HOST_SHARED] = "shared",
		[HOST_LIBRARIES] = "libraries",
		[HOST_FILES] = "files",
		[HOST_TENSORS] = "tensors",
		[HOST_PYTHON] = "python",
		[HOST_STACKS] = "stacks",
		[HOST_MALLOC] = "malloc",
		[HOST_UNKNOWN] = "unknown",
		[HOST_PSS] = "pss",
		[HOST_USS] = "uss",
		[HOST_SWAP] = "swap",
		[HOST_HUGETLB] = "hugetlb",
		[HOST_PAGE_TABLES] = "page_tables",
		[HOST_GROUP] = "cgroup",
		[HOST_GROUP_KERNEL] = "cgroup_kernel",
	};

	return part < HOST_PART_NR ? names[part] : NULL;
}
