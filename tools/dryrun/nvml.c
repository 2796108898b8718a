// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * NVML, in a library of its own name. Reads this process's usage from libcuda.so.1 in the same
 * folder. MEMTRACE_DRYRUN_NVML names a file that describes the rest of the machine: see
 * nvml_machine.c.
 */
#include "dryrun.h"
#include "nvml_machine.h"
#include "props.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { /* nvmlReturn_t */
       NVML_OK = 0,
       NVML_INVALID_ARGUMENT = 2,
       NVML_NOT_SUPPORTED = 3,
       NVML_NOT_FOUND = 6,
       NVML_INSUFFICIENT_SIZE = 7,
       NVML_VERSION_MISMATCH = 25,
       NVML_UNKNOWN = 999,
};

struct nvml_device {
	char unused;
};

static struct nvml_device devices[DRYRUN_MAX_DEVICES];

/* NVML sees all devices and ignores CUDA_VISIBLE_DEVICES. */
static int n_devices(void)
{
	return dryrun__config()->n_devices;
}

static int index_of(const struct nvml_device *device)
{
	size_t i = (size_t)(device - devices);

	return device >= devices && i < (size_t)n_devices() ? (int)i : -1;
}

static uint64_t used_by_us(int device)
{
	struct dryrun_usage *usage = dlsym(RTLD_DEFAULT, "memtrace_dryrun_usage");

	if (!usage || (uint32_t)device >= __atomic_load_n(&usage->n_devices, __ATOMIC_ACQUIRE))
		return 0;
	return __atomic_load_n(&usage->device[device].used, __ATOMIC_RELAXED);
}

NO_EFFECT(nvmlInit_v2)
NO_EFFECT(nvmlInit)
NO_EFFECT(nvmlInitWithFlags)
NO_EFFECT(nvmlShutdown)

API(const char *, nvmlErrorString, int error)
{
	switch (error) {
	case NVML_OK:
		return "Success";
	case NVML_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_NOT_SUPPORTED:
		return "Not Supported (dry run)";
	case NVML_NOT_FOUND:
		return "Not Found";
	case NVML_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	default:
		return "Unknown Error";
	}
}

static int put_text(char *out, unsigned int size, const char *text)
{
	if (!out || !size)
		return NVML_INVALID_ARGUMENT;
	if (strlen(text) >= size)
		return NVML_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_OK;
}

API(int, nvmlSystemGetDriverVersion, char *out, unsigned int size)
{
	return put_text(out, size, "590.00");
}

API(int, nvmlSystemGetNVMLVersion, char *out, unsigned int size)
{
	return put_text(out, size, "13.590.00");
}

API(int, nvmlSystemGetCudaDriverVersion_v2, int *version)
{
	*version = 13020;
	return NVML_OK;
}

API(int, nvmlSystemGetCudaDriverVersion, int *version)
{
	*version = 13020;
	return NVML_OK;
}

/* ---- devices ---- */

API(int, nvmlDeviceGetCount_v2, unsigned int *count)
{
	*count = (unsigned int)n_devices();
	return NVML_OK;
}

API(int, nvmlDeviceGetCount, unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

API(int, nvmlDeviceGetHandleByIndex_v2, unsigned int index, struct nvml_device **device)
{
	if (index >= (unsigned int)n_devices())
		return NVML_INVALID_ARGUMENT;
	*device = &devices[index];
	return NVML_OK;
}

API(int, nvmlDeviceGetHandleByIndex, unsigned int index, struct nvml_device **device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

API(int, nvmlDeviceGetHandleByPciBusId_v2, const char *text, struct nvml_device **device)
{
	char own[16];
	size_t size = strlen(text);

	/* The PCI domain may have four or eight digits. */
	for (int i = 0; i < n_devices(); i++) {
		props__bus_id(i, own, sizeof(own));
		if (!strcasecmp(own, text) ||
		    (size == strlen(own) + 4 && !strncmp(text, "0000", 4) &&
		     !strcasecmp(own, text + 4))) {
			*device = &devices[i];
			return NVML_OK;
		}
	}
	return NVML_NOT_FOUND;
}

API(int, nvmlDeviceGetHandleByPciBusId, const char *text, struct nvml_device **device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}

/* nvmlGpuP2PStatus_t (nvml.h): 0 is "OK". All devices reach each other, as cuDeviceCanAccessPeer
 * says. */
API(int, nvmlDeviceGetP2PStatus, struct nvml_device *device, struct nvml_device *peer, int kind,
    int *status)
{
	(void)device;
	(void)peer;
	(void)kind;
	*status = 0;
	return NVML_OK;
}

static void uuid_text(int device, char text[48])
{
	unsigned char u[16];
	size_t n = 0;

	props__uuid(device, u);
	n = (size_t)snprintf(text, 48, "GPU-");
	for (int i = 0; i < 16; i++)
		n += (size_t)snprintf(text + n, 48 - n,
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
				      u[i]);
}

API(int, nvmlDeviceGetUUID, struct nvml_device *device, char *out, unsigned int size)
{
	char text[48];

	if (index_of(device) < 0)
		return NVML_INVALID_ARGUMENT;
	uuid_text(index_of(device), text);
	return put_text(out, size, text);
}

API(int, nvmlDeviceGetHandleByUUID, const char *uuid, struct nvml_device **device)
{
	char text[48];

	for (int i = 0; i < n_devices(); i++) {
		uuid_text(i, text);
		if (!strcmp(text, uuid)) {
			*device = &devices[i];
			return NVML_OK;
		}
	}
	return NVML_NOT_FOUND;
}

API(int, nvmlDeviceGetName, struct nvml_device *device, char *out, unsigned int size)
{
	return index_of(device) < 0 ? NVML_INVALID_ARGUMENT
				    : put_text(out, size, dryrun__config()->name);
}

API(int, nvmlDeviceGetIndex, struct nvml_device *device, unsigned int *index)
{
	if (index_of(device) < 0)
		return NVML_INVALID_ARGUMENT;
	*index = (unsigned int)index_of(device);
	return NVML_OK;
}

API(int, nvmlDeviceGetMinorNumber, struct nvml_device *device, unsigned int *minor)
{
	int i = index_of(device);
	struct machine m;

	if (i < 0)
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	*minor = m.device[i].minor;
	return NVML_OK;
}

API(int, nvmlDeviceGetMigMode, struct nvml_device *device, unsigned int *current,
    unsigned int *pending)
{
	int i = index_of(device);
	struct machine m;

	if (i < 0)
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	*current = *pending = m.device[i].mig;
	return NVML_OK;
}

API(int, nvmlDeviceGetCudaComputeCapability, struct nvml_device *device, int *major, int *minor)
{
	if (index_of(device) < 0)
		return NVML_INVALID_ARGUMENT;
	*major = dryrun__config()->sm_major;
	*minor = dryrun__config()->sm_minor;
	return NVML_OK;
}

struct pci_info { /* nvmlPciInfo_t */
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device, pci_subsystem;
	char bus_id[32];
};

API(int, nvmlDeviceGetPciInfo_v3, struct nvml_device *device, struct pci_info *out)
{
	int i = index_of(device);

	if (i < 0 || !out)
		return NVML_INVALID_ARGUMENT;
	memset(out, 0, sizeof(*out));
	out->bus = DRYRUN_PCI_BUS(i);
	props__bus_id(i, out->bus_id_legacy, sizeof(out->bus_id_legacy));
	strcpy(out->bus_id, "0000");
	props__bus_id(i, out->bus_id + 4, sizeof(out->bus_id) - 4);
	return NVML_OK;
}

/* ---- memory ---- */

struct memory { /* nvmlMemory_t */
	unsigned long long total, free, used;
};

struct memory_v2 { /* nvmlMemory_v2_t */
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

#define MEMORY_V2 (sizeof(struct memory_v2) | 2u << 24)

static bool memory_of(int device, struct memory_v2 *out)
{
	struct machine m;

	if (!machine__read(&m))
		return false;
	machine__wait(&m);
	out->total = dryrun__config()->vram;
	out->reserved = m.device[device].reserved;
	out->used = used_by_us(device);
	for (unsigned int i = 0; i < m.n_processes; i++)
		if (m.process[i].device == device)
			out->used += m.process[i].used;
	if (out->reserved > out->total)
		out->reserved = out->total;
	if (out->used > out->total - out->reserved)
		out->used = out->total - out->reserved;
	out->free = out->total - out->reserved - out->used;
	return true;
}

/* The first version has no field for memory reserved by the driver, and counts it as used. */
API(int, nvmlDeviceGetMemoryInfo, struct nvml_device *device, struct memory *out)
{
	int i = index_of(device);
	struct memory_v2 v2;
	struct machine m;

	if (i < 0 || !out)
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m) || !memory_of(i, &v2))
		return NVML_UNKNOWN;
	if (m.no_memory)
		return NVML_NOT_SUPPORTED;
	*out = (struct memory){ v2.total, v2.free, v2.used + v2.reserved };
	return NVML_OK;
}

API(int, nvmlDeviceGetMemoryInfo_v2, struct nvml_device *device, struct memory_v2 *out)
{
	int i = index_of(device);
	struct machine m;

	if (i < 0 || !out)
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	if (m.no_v2 || m.no_memory)
		return NVML_NOT_SUPPORTED;
	if (out->version != MEMORY_V2)
		return NVML_VERSION_MISMATCH;
	return memory_of(i, out) ? NVML_OK : NVML_UNKNOWN;
}

struct process_v1 {
	unsigned int pid;
	unsigned long long used;
};

struct process_v2 { /* nvmlProcessInfo of _v2 and _v3 */
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
};

/* This process, once it has a context, and the processes in the machine's file. */
static int list_processes(struct nvml_device *device, unsigned int *count, struct process_v1 *v1,
			  struct process_v2 *v2)
{
	int i = index_of(device);
	unsigned int room, n = 0;
	struct machine m;
	uint64_t used;

	if (i < 0 || !count || (*count && !v1 && !v2))
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	machine__wait(&m);
	used = used_by_us(i);
	room = *count;
	for (unsigned int k = 0; k <= m.n_processes; k++) {
		bool own = k == m.n_processes;
		struct process_v2 p = { (unsigned int)getpid(), used, UINT32_MAX, UINT32_MAX };

		if (own ? !used : m.process[k].device != i)
			continue;
		if (!own) {
			p.pid = m.process[k].pid;
			p.used = m.process[k].used;
		}
		if (n < room && v1)
			v1[n] = (struct process_v1){ p.pid, p.used };
		else if (n < room)
			v2[n] = p;
		n++;
	}
	*count = n;
	return n > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

API(int, nvmlDeviceGetComputeRunningProcesses, struct nvml_device *device, unsigned int *count,
    struct process_v1 *out)
{
	return list_processes(device, count, out, NULL);
}

API(int, nvmlDeviceGetComputeRunningProcesses_v2, struct nvml_device *device, unsigned int *count,
    struct process_v2 *out)
{
	return list_processes(device, count, NULL, out);
}

API(int, nvmlDeviceGetComputeRunningProcesses_v3, struct nvml_device *device, unsigned int *count,
    struct process_v2 *out)
{
	return list_processes(device, count, NULL, out);
}

API(int, nvmlDeviceGetGraphicsRunningProcesses, struct nvml_device *device, unsigned int *count,
    void *out)
{
	*count = 0;
	return NVML_OK;
}

API(int, nvmlDeviceGetGraphicsRunningProcesses_v3, struct nvml_device *device, unsigned int *count,
    void *out)
{
	*count = 0;
	return NVML_OK;
}

/* ---- not supported ---- */

#define NOT_SUPPORTED(name)                                                                        \
	API(int, name, void)                                                                       \
	{                                                                                          \
		return NVML_NOT_SUPPORTED;                                                         \
	}

NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
NOT_SUPPORTED(nvmlDeviceGetNvLinkState)
NOT_SUPPORTED(nvmlDeviceGetTemperature)
NOT_SUPPORTED(nvmlDeviceGetPowerUsage)
NOT_SUPPORTED(nvmlDeviceGetClockInfo)

/* Success without a fabric: PyTorch's expandable segments treat other results as a broken
 * installation. */
NO_EFFECT(nvmlDeviceGetGpuFabricInfoV)

struct utilization {
	unsigned int gpu, memory;
};

API(int, nvmlDeviceGetUtilizationRates, struct nvml_device *device, struct utilization *out)
{
	*out = (struct utilization){ 0, 0 };
	return NVML_OK;
}
