// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "props.h"
#include "dryrun.h"

#include <stdio.h>
#include <string.h>

#define K 1024

/* From the vendor's data sheets and table of compute capabilities; the largest common device of
 * each. */
static const struct arch archs[] = {
	{ 7, 0, 80, 2048, 32, 96 * K, 96 * K, 0, 6144 * K, 4096, 1530000, 877000 },	 /* V100 */
	{ 7, 5, 40, 1024, 16, 64 * K, 64 * K, 0, 4096 * K, 256, 1590000, 5001000 },	 /* T4 */
	{ 8, 0, 108, 2048, 32, 164 * K, 163 * K, K, 40960 * K, 5120, 1410000, 1593000 }, /* A100 */
	{ 8, 6, 84, 1536, 16, 100 * K, 99 * K, K, 6144 * K, 384, 1740000, 7251000 },	 /* A40 */
	{ 8, 9, 142, 1536, 24, 100 * K, 99 * K, K, 98304 * K, 384, 2520000, 9001000 },	 /* L40S */
	{ 9, 0, 132, 2048, 32, 228 * K, 227 * K, K, 51200 * K, 5120, 1980000, 2619000 }, /* H100 */
	{ 10, 0, 148, 2048, 32, 228 * K, 227 * K, K, 129024 * K, 8192, 1965000,
	  3996000 }, /* B200 */
	{ 10, 3, 148, 2048, 32, 228 * K, 227 * K, K, 129024 * K, 8192, 1965000,
	  3996000 }, /* B300 */
	{ 12, 0, 188, 1536, 24, 100 * K, 99 * K, K, 131072 * K, 512, 2430000,
	  14001000 }, /* RTX PRO 6000 */
};

const struct arch *props__arch(void)
{
	const struct dryrun_config *config = dryrun__config();

	for (size_t i = 0; i < sizeof(archs) / sizeof(*archs); i++)
		if (archs[i].major == config->sm_major && archs[i].minor == config->sm_minor)
			return &archs[i];
	return &archs[2]; /* config.c accepts no other kind */
}

int props__processors(void)
{
	return dryrun__config()->processors ?: props__arch()->processors;
}

void props__bus_id(int device, char *text, size_t size)
{
	snprintf(text, size, "0000:%02X:00.0", DRYRUN_PCI_BUS(device) & 0xff);
}

void props__uuid(int device, unsigned char uuid[16])
{
	memcpy(uuid, "dry run device\0", 15);
	uuid[15] = (unsigned char)device;
}

/* Attributes by cudaDeviceAttr, equal to CUdevice_attribute; -1: unknown. */
static int fixed_attribute(int attribute)
{
	switch (attribute) {
	case 1: /* threads per block */
	case 2:
	case 3:
		return 1024;
	case 4:
		return 64;
	case 5: /* blocks per grid */
		return INT32_MAX;
	case 6:
	case 7:
		return 65535;
	case 8: /* shared memory per block */
		return 48 * K;
	case 9: /* constant memory */
		return 64 * K;
	case 10: /* warp size */
		return 32;
	case 11: /* pitch */
		return INT32_MAX;
	case 12: /* registers per block and per multiprocessor */
	case 82:
		return 65536;
	case 14: /* texture alignment */
	case 30:
		return 512;
	case 51:
		return 32;
	case 40: /* copy engines */
		return 3;
	case 15: /* concurrent copy and kernel */
	case 19: /* maps host memory */
	case 31: /* concurrent kernels */
	case 32: /* ECC */
	case 41: /* unified addresses */
	case 78: /* stream priorities */
	case 79: /* L1 caches */
	case 80:
	case 83: /* managed memory */
	case 89:
	case 90:  /* compute preemption */
	case 91:  /* host pointers of registered memory */
	case 95:  /* cooperative launch */
	case 98:  /* remote writes */
	case 99:  /* registering host memory, also read-only */
	case 102: /* virtual memory management */
	case 113:
	case 114: /* timeline semaphores */
	case 115: /* memory pools */
		return 1;
	case 93: /* 64-bit stream memory operations, waiting for values */
	case 94:
	case 92:
	case 122:
	case 123:
		return 1;
	case 87: /* single to double precision */
		return 2;
	case 17: /* not supported: time limits, TCC and others */
	case 18:
	case 20:
	case 34:
	case 35:
	case 50:
	case 84:
	case 85:
	case 86: /* host atomics, pageable memory, device memory for the host */
	case 88:
	case 100:
	case 101:
	case 103: /* shareable memory handles */
	case 104:
	case 105:
	case 107: /* compression */
	case 110: /* RDMA */
	case 112: /* sparse arrays */
	case 116:
	case 117:
	case 118:
	case 119:
	case 121:
	case 124:
	case 125: /* IPC events */
	case 128: /* fabric handles */
	case 129: /* unified function pointers */
	case 130: /* NUMA */
	case 132: /* multicast */
	case 133: /* MPS */
		return 0;
	case 126: /* memory synchronization domains */
		return 1;
	case 131:
	case 134:
		return -1; /* no NUMA node: CUDA's value is -1 */
	default:
		return INT32_MIN;
	}
}

int props__attribute(int attribute, int device)
{
	const struct arch *a = props__arch();
	char name[48];
	int value;

	switch (attribute) {
	case 13:
		return a->clock_khz;
	case 16:
		return props__processors();
	case 33:
		return DRYRUN_PCI_BUS(device);
	case 36:
		return a->memory_khz;
	case 37:
		return a->bus_width;
	case 38:
		return a->l2;
	case 39:
		return a->threads;
	case 75:
		return a->major;
	case 76:
		return a->minor;
	case 81:
		return a->shared;
	case 97:
		return a->shared_block;
	case 106:
		return a->blocks;
	case 108:
	case 109:
		return a->major >= 8 ? a->l2 / 4 * 3 : 0;
	case 111:
		return a->reserved;
	case 120: /* clusters, and tensor maps */
	case 127:
		return a->major >= 9;
	}
	if ((attribute >= 21 && attribute <= 29) || (attribute >= 42 && attribute <= 49) ||
	    (attribute >= 52 && attribute <= 74) || attribute == 77)
		return 16384; /* texture and surface sizes: the minimum of all devices */
	value = fixed_attribute(attribute);
	if (value != INT32_MIN)
		return value;
	snprintf(name, sizeof(name), "device attribute %d", attribute);
	dryrun__unmodelled(name);
	return 0;
}

static void set_int(unsigned char *prop, unsigned int offset, int value)
{
	memcpy(prop + offset, &value, sizeof(value));
}

static void set_size(unsigned char *prop, unsigned int offset, uint64_t value)
{
	memcpy(prop + offset, &value, sizeof(value));
}

#define PROP_SIZE_13 1008
#define PROP_SIZE_12 1032

/* Offsets of cudaDeviceProp in the headers of CUDA 12.1 and 13.0; equal up to 368. */
static const struct {
	short attribute, at13, at12; /* -1: no such member */
	bool is_size;
} fields[] = {
	{ 8, 296, 296, true },	 /* sharedMemPerBlock */
	{ 12, 304, 304, false }, /* regsPerBlock */
	{ 10, 308, 308, false }, /* warpSize */
	{ 11, 312, 312, true },	 /* memPitch */
	{ 1, 320, 320, false },	 /* maxThreadsPerBlock */
	{ 2, 324, 324, false },	 /* maxThreadsDim */
	{ 3, 328, 328, false },	  { 4, 332, 332, false }, { 5, 336, 336, false }, /* maxGridSize */
	{ 6, 340, 340, false },	  { 7, 344, 344, false }, { 13, -1, 348, false }, /* clockRate */
	{ 9, 352, 352, true },				  /* totalConstMem */
	{ 75, 360, 360, false },			  /* major, minor */
	{ 76, 364, 364, false },  { 14, 368, 368, true }, /* textureAlignment */
	{ 51, 376, 376, true },				  /* texturePitchAlignment */
	{ 15, -1, 384, false },				  /* deviceOverlap */
	{ 16, 384, 388, false },			  /* multiProcessorCount */
	{ 18, 388, 396, false },			  /* integrated */
	{ 19, 392, 400, false },			  /* canMapHostMemory */
	{ 30, 552, 568, true },				  /* surfaceAlignment */
	{ 31, 560, 576, false },			  /* concurrentKernels */
	{ 32, 564, 580, false },			  /* ECCEnabled */
	{ 33, 568, 584, false },			  /* pciBusID */
	{ 40, 584, 600, false },			  /* asyncEngineCount */
	{ 41, 588, 604, false },			  /* unifiedAddressing */
	{ 36, -1, 608, false },				  /* memoryClockRate */
	{ 37, 592, 612, false },			  /* memoryBusWidth */
	{ 38, 596, 616, false },			  /* l2CacheSize */
	{ 108, 600, 620, false },			  /* persistingL2CacheMaxSize */
	{ 39, 604, 624, false },			  /* maxThreadsPerMultiProcessor */
	{ 78, 608, 628, false },			  /* streamPrioritiesSupported */
	{ 79, 612, 632, false },			  /* globalL1CacheSupported */
	{ 80, 616, 636, false },			  /* localL1CacheSupported */
	{ 81, 624, 640, true },				  /* sharedMemPerMultiprocessor */
	{ 82, 632, 648, false },			  /* regsPerMultiprocessor */
	{ 83, 636, 652, false },			  /* managedMemory */
	{ 87, -1, 668, false },				  /* singleToDoublePrecisionPerfRatio */
	{ 89, 656, 676, false },			  /* concurrentManagedAccess */
	{ 90, 660, 680, false },			  /* computePreemptionSupported */
	{ 91, 664, 684, false },			  /* canUseHostPointerForRegisteredMem */
	{ 95, 668, 688, false },			  /* cooperativeLaunch */
	{ 97, 672, 696, true },				  /* sharedMemPerBlockOptin */
	{ 106, 688, 712, false },			  /* maxBlocksPerMultiProcessor */
	{ 109, 692, 716, false },			  /* accessPolicyMaxWindowSize */
	{ 111, 696, 720, true },			  /* reservedSharedMemPerBlock */
	{ 99, 704, 728, false },			  /* hostRegisterSupported */
	{ 113, 712, 736, false },			  /* hostRegisterReadOnlySupported */
	{ 114, 716, 740, false },			  /* timelineSemaphoreInteropSupported */
	{ 115, 720, 744, false },			  /* memoryPoolsSupported */
	{ 120, 748, 772, false },			  /* clusterLaunch */
};

void props__fill(void *prop, int device, int runtime_major)
{
	bool is13 = runtime_major >= 13;

	memset(prop, 0, is13 ? PROP_SIZE_13 : PROP_SIZE_12);
	snprintf(prop, 256, "%s", dryrun__config()->name);
	props__uuid(device, (unsigned char *)prop + 256);
	set_size(prop, 288, dryrun__config()->vram);
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		int at = is13 ? fields[i].at13 : fields[i].at12,
		    value = props__attribute(fields[i].attribute, device);

		if (at < 0)
			continue;
		if (fields[i].is_size)
			set_size(prop, (unsigned int)at, (uint64_t)value);
		else
			set_int(prop, (unsigned int)at, value);
	}
}
