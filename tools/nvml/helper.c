/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The helper process that calls NVML; user/inspect/nvml.h has its messages. A program of its own,
 * because it loads a shared library of the host, which a static program cannot. memtrace-bpf has it
 * in itself as an array and starts it from memory. Usage: HELPER gpus-helper PARENT, or HELPER
 * cuda-memory PARENT for one answer of CUDA.
 */
#include <dlfcn.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "cuda_memory.h"
#include "inspect/nvml.h"

/* ---- NVML: types and numbers as in nvml.h ---- */

typedef struct nvml_device_handle *nvml_device;

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

#define NVML_NOT_SUPPORTED 3 /* nvmlReturn_t */
#define NVML_VGPU 2	     /* nvmlGpuVirtualizationMode_t: in a virtual machine */
#define NVML_MEMORY_V2 (sizeof(struct nvml_memory_v2) | 2u << 24)

struct nvml_process { /* nvmlProcessInfo_v2_t, also used by the _v3 function */
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

struct nvml_work { /* nvmlProcessUtilizationSample_t */
	unsigned pid;
	unsigned long long time; /* us since 1970 */
	unsigned sm, memory, encoder, decoder;
};

#define PROCESSES_MAX 4096
#define NOBODY 65534

struct nvml {
	int (*init)(void);
	int (*count)(unsigned *n);
	int (*by_index)(unsigned i, nvml_device *ret);
	int (*name)(nvml_device d, char *buf, unsigned len);
	int (*uuid)(nvml_device d, char *buf, unsigned len);
	int (*minor)(nvml_device d, unsigned *ret);
	int (*memory)(nvml_device d, struct nvml_memory *ret);
	int (*processes)(nvml_device d, unsigned *n, struct nvml_process *v);
	/* NULL with older drivers. */
	int (*memory_v2)(nvml_device d, struct nvml_memory_v2 *ret);
	int (*mig_mode)(nvml_device d, unsigned *now, unsigned *pending);
	int (*virtual_mode)(nvml_device d, unsigned *ret);
	int (*graphics)(nvml_device d, unsigned *n, struct nvml_process *v);
	int (*mps)(nvml_device d, unsigned *n, struct nvml_process *v);
	int (*work)(nvml_device d, struct nvml_work *v, unsigned *n, unsigned long long since);
	int (*slices)(nvml_device d, unsigned *n);
	int (*slice)(nvml_device d, unsigned i, nvml_device *ret);
	int (*slice_number)(nvml_device slice, unsigned *ret);
};

static const struct function {
	const char *name, *older;
	size_t at;
	bool optional;
} functions[] = {
	{ "nvmlInit_v2", NULL, offsetof(struct nvml, init), false },
	{ "nvmlDeviceGetCount_v2", NULL, offsetof(struct nvml, count), false },
	{ "nvmlDeviceGetHandleByIndex_v2", NULL, offsetof(struct nvml, by_index), false },
	{ "nvmlDeviceGetName", NULL, offsetof(struct nvml, name), false },
	{ "nvmlDeviceGetUUID", NULL, offsetof(struct nvml, uuid), false },
	{ "nvmlDeviceGetMinorNumber", NULL, offsetof(struct nvml, minor), false },
	{ "nvmlDeviceGetMemoryInfo", NULL, offsetof(struct nvml, memory), false },
	{ "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
	  offsetof(struct nvml, processes), false },
	{ "nvmlDeviceGetMemoryInfo_v2", NULL, offsetof(struct nvml, memory_v2), true },
	{ "nvmlDeviceGetMigMode", NULL, offsetof(struct nvml, mig_mode), true },
	{ "nvmlDeviceGetVirtualizationMode", NULL, offsetof(struct nvml, virtual_mode), true },
	{ "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
	  offsetof(struct nvml, graphics), true },
	{ "nvmlDeviceGetMPSComputeRunningProcesses_v3",
	  "nvmlDeviceGetMPSComputeRunningProcesses_v2", offsetof(struct nvml, mps), true },
	{ "nvmlDeviceGetProcessUtilization", NULL, offsetof(struct nvml, work), true },
	{ "nvmlDeviceGetMaxMigDeviceCount", NULL, offsetof(struct nvml, slices), true },
	{ "nvmlDeviceGetMigDeviceHandleByIndex", NULL, offsetof(struct nvml, slice), true },
	{ "nvmlDeviceGetGpuInstanceId", NULL, offsetof(struct nvml, slice_number), true },
};

struct helper {
	struct nvml nvml;
	nvml_device device[GPUS_MAX];
	unsigned n;
	uint64_t mig; /* bit i: GPU i is in multi-instance mode */
	struct nvml_process processes[PROCESSES_MAX];
	struct nvml_work work[PROCESSES_MAX];
	struct gpus_answer answer;
};

/* Loads NVML by name: the machine's library, not the target's. */
static bool load(struct nvml *n, struct gpus_greeting *g)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *f;

	if (!lib) {
		snprintf(g->why, sizeof(g->why), "this machine has no libnvidia-ml.so.1");
		return false;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		f = dlsym(lib, functions[i].name);
		if (!f && functions[i].older)
			f = dlsym(lib, functions[i].older);
		if (!f && !functions[i].optional) {
			snprintf(g->why, sizeof(g->why), "NVML lacks %s", functions[i].name);
			return false;
		}
		memcpy((char *)n + functions[i].at, &f, sizeof(f));
	}
	return true;
}

/* Whether any user may open the GPUs' device nodes, which NVML opens itself. If not, the helper
 * keeps its user. */
static bool are_gpus_public(void)
{
	char path[32] = "/dev/nvidiactl";
	struct stat st;

	if (!stat("/dev/nvmap", &st)) /* Jetson, whose nodes belong to a group */
		return false;
	for (int i = -1; i < GPUS_MAX; i++) {
		if (i >= 0)
			snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		if (!stat(path, &st) && (st.st_mode & 06) != 06)
			return false;
	}
	return true;
}

static void give_up_rights(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	struct rlimit no_core = { 0, 0 };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	for (int cap = 0; cap < 64; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (!geteuid() && are_gpus_public() && !setgroups(0, NULL) &&
	    !setresgid(NOBODY, NOBODY, NOBODY) && setresuid(NOBODY, NOBODY, NOBODY))
		_exit(126); /* a partial change of user is unsafe */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &h, none))
		_exit(126);
	setrlimit(RLIMIT_CORE, &no_core);
}

/* The host's memory. False: not known. */
static bool host_memory(struct nvml_memory *ret)
{
	uint64_t total, left;
	char text[4096];

	if (io__text("/proc/meminfo", text, sizeof(text)) < 0 || strncmp(text, "MemTotal:", 9) ||
	    sscanf(text + 9, "%" SCNu64, &total) != 1 ||
	    !memory__field(text, "\nMemAvailable:", &left))
		return false;
	*ret = (struct nvml_memory){ .total = total << 10, .free = left };
	return true;
}

/* A GPU without memory of its own (GB10) uses the host's, and NVML has figures of its processes
 * only. */
static bool memory_of(const struct nvml *n, nvml_device d, struct nvml_memory *ret)
{
	int err = n->memory(d, ret);

	return err == NVML_NOT_SUPPORTED ? host_memory(ret) : !err && ret->total;
}

static uint64_t total_of(const struct nvml *n, nvml_device d)
{
	struct nvml_memory_v2 v2 = { .version = NVML_MEMORY_V2 };
	struct nvml_memory v1 = { 0 };

	/* The driver's own reserve is not available to programs. Only the second version of the
	 * call reports it. */
	if (n->memory_v2 && !n->memory_v2(d, &v2) && v2.reserved <= v2.total)
		return v2.total - v2.reserved;
	return memory_of(n, d, &v1) ? v1.total : 0;
}

static void find_gpus(struct helper *h, struct gpus_greeting *g)
{
	unsigned n = 0, minor, now, pending;
	int err = h->nvml.init();

	if (err || h->nvml.count(&n) || n > GPUS_MAX) {
		snprintf(g->why, sizeof(g->why), "NVML cannot be used: error %d, %u GPUs", err, n);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		struct gpu *gpu = &g->gpu[i];

		if (h->nvml.by_index(i, &h->device[i]) ||
		    h->nvml.name(h->device[i], gpu->name, sizeof(gpu->name)) ||
		    h->nvml.uuid(h->device[i], gpu->uuid, sizeof(gpu->uuid))) {
			snprintf(g->why, sizeof(g->why), "NVML does not describe GPU %u", i);
			return;
		}
		gpu->minor = h->nvml.minor(h->device[i], &minor) || minor > INT_MAX ? -1
										    : (int)minor;
		gpu->mig = h->nvml.mig_mode && !h->nvml.mig_mode(h->device[i], &now, &pending) &&
			   now;
		gpu->vgpu = h->nvml.virtual_mode && !h->nvml.virtual_mode(h->device[i], &now) &&
			    now == NVML_VGPU;
		if (gpu->mig)
			h->mig |= UINT64_C(1) << i;
		else
			gpu->total = total_of(&h->nvml, h->device[i]);
	}
	g->n = h->n = n;
}

/* The entry of a process that another list has, too; a new one otherwise. NULL: no room. */
static struct gpus_process *entry_of(struct gpus_answer *a, unsigned gpu, unsigned pid,
				     unsigned slice)
{
	for (unsigned i = a->n; i-- > 0;) {
		struct gpus_process *p = &a->process[i];

		if (p->gpu == gpu && p->pid == pid && p->slice == slice)
			return p;
	}
	if (a->n == GPUS_PROCESSES)
		return NULL;
	a->process[a->n] = (struct gpus_process){ gpu, pid, UINT64_MAX, 0, 0, slice };
	return &a->process[a->n++];
}

/* Adds a list of processes to the answer. A process in two lists has the same figure in both, and
 * counts once. slice: number of the slice. False: the list is not complete. */
static bool add_list(struct helper *h, unsigned gpu, unsigned slice, unsigned kind,
		     int (*list)(nvml_device d, unsigned *n, struct nvml_process *v), nvml_device d)
{
	unsigned n = PROCESSES_MAX;

	if (list(d, &n, h->processes) || n > PROCESSES_MAX)
		return false;
	for (unsigned i = 0; i < n; i++) {
		const struct nvml_process *p = &h->processes[i];
		bool in_slice = slice == GPUS_NO_SLICE && h->mig >> gpu & 1;
		struct gpus_process *e = entry_of(&h->answer, gpu, p->pid,
						  in_slice ? p->gpu_instance : slice);

		if (!e)
			return false;
		e->kinds |= kind;
		/* NVML also uses ~0 for "not known" */
		if (e->used == UINT64_MAX || (p->used != UINT64_MAX && p->used > e->used))
			e->used = p->used;
	}
	return true;
}

static bool add_lists(struct helper *h, unsigned gpu, unsigned slice, bool all, nvml_device d)
{
	bool known = add_list(h, gpu, slice, GPUS_COMPUTE, h->nvml.processes, d);

	if (all && h->nvml.graphics)
		add_list(h, gpu, slice, GPUS_GRAPHICS, h->nvml.graphics, d);
	if (all && h->nvml.mps)
		add_list(h, gpu, slice, GPUS_MPS, h->nvml.mps, d);
	return known;
}

/* Adds the slices of a GPU and their processes. A user who may not see them gets none. */
static bool add_slices(struct helper *h, unsigned gpu)
{
	struct gpus_answer *a = &h->answer;
	bool known = false;
	unsigned n = 0;

	if (!(h->mig >> gpu & 1) || !h->nvml.slices || !h->nvml.slice || !h->nvml.slice_number ||
	    h->nvml.slices(h->device[gpu], &n))
		return false;
	for (unsigned i = 0; i < n && a->n_slices < GPUS_SLICES; i++) {
		struct gpus_slice *s = &a->slice[a->n_slices];
		struct nvml_memory memory;
		nvml_device d;

		*s = (struct gpus_slice){ .gpu = gpu };
		if (h->nvml.slice(h->device[gpu], i, &d) || h->nvml.slice_number(d, &s->number))
			continue;
		if (h->nvml.uuid(d, s->uuid, sizeof(s->uuid)))
			s->uuid[0] = '\0';
		if (!h->nvml.memory(d, &memory) && memory.free <= memory.total) {
			s->total = memory.total;
			s->used = memory.total - memory.free;
		}
		a->n_slices++;
		known = add_lists(h, gpu, s->number, true, d) || known;
	}
	return known;
}

/* Sets the time of the last work of each process, as far back as the driver remembers. */
static void add_work(struct helper *h, unsigned gpu)
{
	uint64_t now = clock__read(CLOCK_REALTIME), mono = clock__monotonic();
	struct gpus_answer *a = &h->answer;
	unsigned n = PROCESSES_MAX;

	if (!h->nvml.work || h->nvml.work(h->device[gpu], h->work, &n, 0) || n > PROCESSES_MAX)
		return;
	for (unsigned i = 0; i < n; i++) {
		const struct nvml_work *w = &h->work[i];
		uint64_t at = w->time * 1000, ago = now > at ? now - at : 0;

		if (!(w->sm | w->memory | w->encoder | w->decoder) || ago >= mono)
			continue;
		for (unsigned k = 0; k < a->n; k++)
			if (a->process[k].gpu == gpu && a->process[k].pid == w->pid &&
			    a->process[k].worked < mono - ago)
				a->process[k].worked = mono - ago;
	}
}

/* Sets what the driver tells of the memory of a GPU that has its own. */
static void add_memory(struct helper *h, unsigned gpu)
{
	struct nvml_memory_v2 v2 = { .version = NVML_MEMORY_V2 };
	struct gpus_memory *m = &h->answer.memory[gpu];
	struct nvml_memory v1 = { 0 };

	if (h->nvml.memory_v2 && !h->nvml.memory_v2(h->device[gpu], &v2) && v2.free <= v2.total)
		*m = (struct gpus_memory){ v2.total, v2.total - v2.free, v2.reserved };
	else if (!h->nvml.memory(h->device[gpu], &v1) && v1.free <= v1.total)
		*m = (struct gpus_memory){ v1.total, v1.total - v1.free, UINT64_MAX };
	if (m->total)
		h->answer.has_memory |= UINT64_C(1) << gpu;
}

static size_t answer(struct helper *h, const struct gpus_question *q)
{
	struct gpus_answer *a = &h->answer;
	struct nvml_memory memory;

	memset(a, 0, offsetof(struct gpus_answer, process));
	a->begin = clock__monotonic();
	for (unsigned i = 0; i < h->n; i++) {
		uint64_t bit = UINT64_C(1) << i;

		if (!(q->mask & bit))
			continue;
		if (add_lists(h, i, GPUS_NO_SLICE, q->all, h->device[i]) |
		    (q->all && add_slices(h, i)))
			a->known |= bit;
		if (q->all) {
			add_memory(h, i);
			add_work(h, i);
		}
		/* In multi-instance mode this is the whole GPU's figure. */
		if (h->mig & bit || !memory_of(&h->nvml, h->device[i], &memory))
			continue;
		a->has_free |= bit;
		a->free[i] = memory.free;
	}
	a->end = clock__monotonic();
	return offsetof(struct gpus_answer, process) + a->n * sizeof(*a->process);
}

/* Sends one answer of CUDA to standard input, a socket. Returns the exit code. */
static int tell_cuda_memory(int parent)
{
	struct gpus_cuda a = { 0 };
	bool loaded;

	alarm(GPUS_CUDA_WITHIN + 1);
	loaded = cuda_memory__load(&a);
	give_up_rights();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 1;
	if (loaded)
		cuda_memory__read(&a);
	return send(STDIN_FILENO, &a, sizeof(a), MSG_NOSIGNAL) != sizeof(a);
}

/* Runs until its standard input, a socket, is closed by the parent, or the parent ends. */
int main(int argc, char **argv)
{
	struct helper *h = calloc(1, sizeof(*h));
	struct gpus_greeting *g = calloc(1, sizeof(*g));
	struct gpus_question q;
	bool loaded;

	if (argc != 3 || syscall(SYS_close_range, 3, ~0U, 0) || !h || !g)
		return 1;
	if (!strcmp(argv[1], "cuda-memory"))
		return tell_cuda_memory(atoi(argv[2]));
	/* The helper ends itself if it is late: its parent may not have the right to kill another
	 * user's process. */
	alarm(GPUS_GREETS_WITHIN + 1);
	loaded = load(&h->nvml, g);
	give_up_rights();
	/* When the parent ends, the socket closes, but a call into NVML may take long. A change of
	 * user resets this setting, so it comes later. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(argv[2]))
		return 1;
	if (loaded)
		find_gpus(h, g);
	if (send(STDIN_FILENO, g, sizeof(*g), MSG_NOSIGNAL) != sizeof(*g) || !g->n)
		return 0;
	free(g);
	for (alarm(0); recv(STDIN_FILENO, &q, sizeof(q), 0) == sizeof(q); alarm(0)) {
		size_t size;

		alarm(GPUS_ANSWERS_WITHIN + 1);
		size = answer(h, &q);
		if (send(STDIN_FILENO, &h->answer, size, MSG_NOSIGNAL) != (ssize_t)size)
			break;
	}
	return 0; /* without nvmlShutdown(), which may hang; the driver cleans up */
}
