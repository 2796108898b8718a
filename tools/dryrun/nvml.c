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
#include <time.h>
#include <unistd.h>

enum { /* nvmlReturn_t */
       NVML_OK = 0,
       NVML_INVALID_ARGUMENT = 2,
       NVML_NOT_SUPPORTED = 3,
       NVML_NO_PERMISSION = 4,
       NVML_NOT_FOUND = 6,
       NVML_INSUFFICIENT_SIZE = 7,
       NVML_VERSION_MISMATCH = 25,
       NVML_UNKNOWN = 999,
};

struct nvml_device {
	char unused;
};

static struct nvml_device devices[DRYRUN_MAX_DEVICES];
/* Handles of slices: see slice_of(). */
static struct nvml_device slices[DRYRUN_MAX_DEVICES][MACHINE_SLICES];

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

/* Sets the device and the place of a slice's handle. False: another handle. */
static bool slice_of(const struct nvml_device *handle, int *device, unsigned int *slice)
{
	const struct nvml_device *first = &slices[0][0];
	size_t i = (size_t)(handle - first);

	if (handle < first || i >= sizeof(slices) / sizeof(*first))
		return false;
	*device = (int)(i / MACHINE_SLICES);
	*slice = i % MACHINE_SLICES;
	return true;
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
	unsigned int slice;
	char text[64];
	int i;

	if (slice_of(device, &i, &slice)) {
		uuid_text(i, text);
		memcpy(text, "MIG-", 4);
		text[4] = (char)('0' + slice);
		return put_text(out, size, text);
	}
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

/* nvmlGpuVirtualizationMode_t: 0 none, 2 a virtual GPU, as the virtual machine sees it. */
API(int, nvmlDeviceGetVirtualizationMode, struct nvml_device *device, unsigned int *mode)
{
	int i = index_of(device);
	struct machine m;

	if (i < 0 || !mode)
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	*mode = m.device[i].vgpu ? 2 : 0;
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
	if (m.device[device].vgpu && m.device[device].vgpu < out->total)
		out->total = m.device[device].vgpu;
	out->reserved = m.device[device].reserved;
	out->used = used_by_us(device) + dryrun__config()->held[device];
	out->used += m.device[device].more;
	for (unsigned int i = 0; i < m.n_processes; i++)
		if (m.process[i].device == device && m.process[i].used != UINT64_MAX)
			out->used += m.process[i].used;
	if (out->reserved > out->total)
		out->reserved = out->total;
	if (out->used > out->total - out->reserved)
		out->used = out->total - out->reserved;
	out->free = out->total - out->reserved - out->used;
	return true;
}

/* Memory of a slice: its total, and the processes in it. */
static bool slice_memory(int device, unsigned int slice, struct memory_v2 *out)
{
	struct machine m;

	if (!machine__read(&m) || slice >= m.device[device].n_slices)
		return false;
	machine__wait(&m);
	out->total = m.device[device].slice[slice].total;
	out->reserved = out->used = 0;
	for (unsigned int i = 0; i < m.n_processes; i++)
		if (m.process[i].device == device && m.process[i].used != UINT64_MAX &&
		    m.process[i].slice == m.device[device].slice[slice].number)
			out->used += m.process[i].used;
	out->free = out->total - out->used;
	return true;
}

/* The first version has no field for memory reserved by the driver, and counts it as used. */
API(int, nvmlDeviceGetMemoryInfo, struct nvml_device *device, struct memory *out)
{
	int i = index_of(device);
	struct memory_v2 v2;
	unsigned int slice;
	struct machine m;

	if (slice_of(device, &i, &slice) && out && slice_memory(i, slice, &v2)) {
		*out = (struct memory){ v2.total, v2.free, v2.used };
		return NVML_OK;
	}
	if (index_of(device) < 0 || !out)
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

/* Where a process is listed. */
struct list {
	int device;
	unsigned int slice; /* number of the slice; UINT32_MAX: the whole device */
	unsigned int kind;  /* MACHINE_COMPUTE ... */
};

/* True if a list has process k of the machine. */
static bool is_listed(const struct machine *m, unsigned int k, const struct list *l)
{
	return m->process[k].device == l->device && m->process[k].kinds & l->kind &&
	       (l->slice == UINT32_MAX || m->process[k].slice == l->slice);
}

static bool find_list(struct nvml_device *handle, const struct machine *m, struct list *ret)
{
	unsigned int slice;

	ret->slice = UINT32_MAX;
	ret->device = index_of(handle);
	if (ret->device >= 0)
		return true;
	if (!slice_of(handle, &ret->device, &slice) || slice >= m->device[ret->device].n_slices)
		return false;
	ret->slice = m->device[ret->device].slice[slice].number;
	return true;
}

/* This process, once it has a context, and the processes in the machine's file. */
static int list_processes(struct nvml_device *device, unsigned int kind, unsigned int *count,
			  struct process_v1 *v1, struct process_v2 *v2)
{
	struct list l = { .kind = kind };
	unsigned int room, n = 0;
	struct machine m;
	uint64_t used;

	if (!count || (*count && !v1 && !v2))
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	if (!find_list(device, &m, &l))
		return NVML_INVALID_ARGUMENT;
	if (m.no_processes)
		return NVML_NOT_SUPPORTED;
	/* Only the administrator may ask a device that has slices as a whole. */
	if (l.slice == UINT32_MAX && m.device[l.device].n_slices)
		return NVML_NO_PERMISSION;
	machine__wait(&m);
	used = l.slice == UINT32_MAX && kind == MACHINE_COMPUTE ? used_by_us(l.device) : 0;
	room = *count;
	for (unsigned int k = 0; k <= m.n_processes; k++) {
		bool own = k == m.n_processes;
		struct process_v2 p = { (unsigned int)getpid(), used, l.slice, UINT32_MAX };

		if (own ? !used : !is_listed(&m, k, &l))
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
	return list_processes(device, MACHINE_COMPUTE, count, out, NULL);
}

#define LIST(name, kind)                                                                           \
	API(int, name, struct nvml_device *device, unsigned int *count, struct process_v2 *out)    \
	{                                                                                          \
		return list_processes(device, kind, count, NULL, out);                             \
	}

LIST(nvmlDeviceGetComputeRunningProcesses_v2, MACHINE_COMPUTE)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, MACHINE_COMPUTE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, MACHINE_GRAPHICS)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, MACHINE_GRAPHICS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MACHINE_MPS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MACHINE_MPS)

API(int, nvmlDeviceGetGraphicsRunningProcesses, struct nvml_device *device, unsigned int *count,
    struct process_v1 *out)
{
	return list_processes(device, MACHINE_GRAPHICS, count, out, NULL);
}

struct work { /* nvmlProcessUtilizationSample_t */
	unsigned int pid;
	unsigned long long time; /* us since 1970 */
	unsigned int sm, memory, encoder, decoder;
};

/* A sample of each process whose last work is known, at the time of that work. */
API(int, nvmlDeviceGetProcessUtilization, struct nvml_device *device, struct work *out,
    unsigned int *count, unsigned long long since)
{
	int i = index_of(device);
	unsigned int n = 0, room;
	struct timespec now;
	struct machine m;

	(void)since;
	if (i < 0 || !count || (*count && !out))
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	room = *count;
	clock_gettime(CLOCK_REALTIME, &now);
	for (unsigned int k = 0; k < m.n_processes; k++) {
		if (m.process[k].device != i || !m.process[k].worked)
			continue;
		if (n < room)
			out[n] = (struct work){
				m.process[k].pid,
				((unsigned long long)now.tv_sec - m.process[k].ago) * 1000000,
				50,
				1,
				0,
				0
			};
		n++;
	}
	*count = n;
	if (!n)
		return NVML_NOT_FOUND;
	return n > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

/* ---- slices of multi-instance mode ---- */

API(int, nvmlDeviceGetMaxMigDeviceCount, struct nvml_device *device, unsigned int *count)
{
	if (index_of(device) < 0)
		return NVML_INVALID_ARGUMENT;
	*count = MACHINE_SLICES;
	return NVML_OK;
}

API(int, nvmlDeviceGetMigDeviceHandleByIndex, struct nvml_device *device, unsigned int slice,
    struct nvml_device **out)
{
	int i = index_of(device);
	struct machine m;

	if (i < 0)
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m))
		return NVML_UNKNOWN;
	if (slice >= m.device[i].n_slices)
		return NVML_NOT_FOUND;
	*out = &slices[i][slice];
	return NVML_OK;
}

API(int, nvmlDeviceGetGpuInstanceId, struct nvml_device *handle, unsigned int *out)
{
	unsigned int slice;
	struct machine m;
	int i;

	if (!slice_of(handle, &i, &slice))
		return NVML_INVALID_ARGUMENT;
	if (!machine__read(&m) || slice >= m.device[i].n_slices)
		return NVML_NOT_FOUND;
	*out = m.device[i].slice[slice].number;
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
