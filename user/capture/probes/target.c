/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/kernel.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/arrival.h"
#include "inspect/container.h"
#include "inspect/elf.h"
#include "inspect/nvml.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/torch.h"
#include "record/stream.h"

/* Offset in a frame of CPython 3.10 and older where a walk begins to read: the fields are far from
 * the start. A walk of 3.11 and newer reads from offset 0. */
#define OLD_FRAME_BASE 24
#define ALLOC_LOOK_EVERY 100000000ULL /* ns between two looks for the CUDA allocator */
#define FIRST_ARG 0x1		      /* for site__pick(): the probe reads the first argument */

static bool in_user_namespace(void)
{
	return bpf_token__state() != BPF_TOKEN_NOT_NEEDED;
}

/* Says why a process may not be looked at without CAP_SYS_PTRACE. */
static const char *why_not_permitted(pid_t pid)
{
	char name[32];
	struct stat st;

	snprintf(name, sizeof(name), "/proc/%d", (int)pid);
	if (stat(name, &st) || st.st_uid != geteuid())
		return "it is another user's";
	return in_user_namespace()
		       ? "it is yours, but it was started outside of this user namespace"
		       : "it is yours, but the system restricts that "
			 "(kernel.yama.ptrace_scope)";
}

static const char *how_to_get_permission(void)
{
	if (in_user_namespace())
		return "start it here, or run memtrace-bpf on the host with sudo";
	return geteuid() ? "run it with sudo" : "give it to this container (--cap-add SYS_PTRACE)";
}

int target__open(pid_t pid, struct target *target, struct failure *failure)
{
	int err;

	memset(target, 0, sizeof(*target));
	target->proc = proc__open(pid);
	if (target->proc)
		return 0;
	err = -errno;
	if (err == -ESRCH && proc__lost_leader(pid))
		return failure__set(failure, EXIT_UNUSABLE, err,
				    "PID %d cannot be recorded: its main thread has ended while "
				    "other threads run, and the kernel does not allow attaching to "
				    "such a process by its PID. Start the job with `memtrace-bpf "
				    "run`, or attach before its main thread ends",
				    (int)pid);
	if (err == -ESRCH && proc__is_zombie(pid))
		return failure__set(failure, EXIT_UNUSABLE, err,
				    "PID %d has ended and is a zombie until its parent waits for "
				    "it: it has no memory",
				    (int)pid);
	if (err == -ESRCH)
		return failure__set(failure, EXIT_UNUSABLE, err,
				    "no process with PID %d; `ps -e` lists the processes",
				    (int)pid);
	if (err == -EINVAL)
		return failure__set(failure, EXIT_UNUSABLE, err,
				    "PID %d is a kernel thread: it has no memory to trace",
				    (int)pid);
	if ((err == -EPERM || err == -EACCES) && !geteuid() && !*caps__missing_to_read())
		return failure__set(failure, EXIT_NOT_PERMITTED, err,
				    "not permitted to look at PID %d, not even as root: %s; a "
				    "security module (AppArmor, SELinux) or the settings of "
				    "this container forbid it. Run memtrace-bpf on the host",
				    (int)pid, strerror(-err));
	if (err == -EPERM || err == -EACCES)
		return failure__set(failure, EXIT_NOT_PERMITTED, err,
				    "not permitted to look at PID %d: %s: CAP_SYS_PTRACE needed; "
				    "%s",
				    (int)pid, why_not_permitted(pid), how_to_get_permission());
	return failure__set(failure, EXIT_FAILED, err, "cannot open PID %d: %s", (int)pid,
			    strerror(-err));
}

void target__close(struct target *target)
{
	hook__close_all(target->hooks);
	cudaalloc__free(target->alloc);
	python__free(target->python);
	maps__free(&target->maps);
	proc__free(target->proc);
	memset(target, 0, sizeof(*target));
}

/* Opens the interpreter of target->maps, and finds where its threads keep their state. Sets
 * python_why if one of them is not possible. */
static void look_for_python(struct target *target)
{
	const char *why = "";

	python__free(target->python);
	target->has_slot = false;
	target->python_why[0] = '\0';
	target->python = python__open(target->proc, &target->maps, &why);
	target->has_python = target->python || errno != ENOENT;
	if (!target->python) {
		text__clean(target->python_why, sizeof(target->python_why), why, strlen(why));
		return;
	}
	target->has_slot = python__slot(target->python, &target->slot, &why) == 0;
	if (!target->has_slot)
		text__clean(target->python_why, sizeof(target->python_why), why, strlen(why));
}

/* Finds CPython's code_dealloc(), which frees a code object, by the pointer to it in
 * PyCode_Type. */
static void look_for_code_dealloc(struct target *target)
{
	struct hook_file in = { .source = HOOK_OF_TYPE, .symbol = "PyCode_Type" };
	struct hook *hook = &target->hooks[HOOK_CODE_GONE];
	uint64_t type, addr;

	hook->id = HOOK_CODE_GONE;
	hook->why_not = "no Python in the process";
	if (!target->python)
		return;
	hook->why_not = "PyCode_Type is not exported or cannot be read";
	in.offset = python__layout(target->python)->tp_dealloc;
	type = python__symbol(target->python, in.symbol);
	if (!type || proc__read_u64(target->proc, type + in.offset, &addr))
		return;
	if (hook__at_address(target->proc, &target->maps, addr, &in, FIRST_ARG, hook) == 0)
		snprintf(hook->symbol, sizeof(hook->symbol), "PyCode_Type.tp_dealloc");
}

/* Without a probe on code_dealloc(), a code object at a reused address would get the name of the
 * one before. Then no frames are read: no lines are better than wrong ones. */
static void need_code_dealloc(struct target *target)
{
	const struct hook *hook = &target->hooks[HOOK_CODE_GONE];

	if (!target->has_slot || hook->found)
		return;
	target->has_slot = false;
	snprintf(target->python_why, sizeof(target->python_why),
		 "cannot see the end of code objects: %s",
		 hook->why_not ? hook->why_not : "no probe is possible there");
}

/* Sets a hook on a function that a Python object points to. err: 0, or the error of finding addr.
 * in: how the function can be found in its file. args: as for site__pick(). */
static void set_hook(struct target *target, enum hook_id id, const char *symbol, int err,
		     uint64_t addr, const struct hook_file *in, unsigned args)
{
	struct hook *hook = &target->hooks[id];

	hook->id = id;
	hook->found = false;
	hook->why_not = "PyTorch's own object for it cannot be read";
	if (!err && hook__at_address(target->proc, &target->maps, addr, in, args, hook) == 0)
		snprintf(hook->symbol, sizeof(hook->symbol), "%s", symbol);
}

/* A symbol that libtorch_python exports, from 1.13 to 2.15
 * (torch/csrc/autograd/python_variable.h). */
#define IN_TORCH "THPVariableClass"

/* Functions found by entries of tables. A PyMethodDef (Include/methodobject.h) begins with name and
 * function. A struct wrapperbase (Include/descrobject.h), an entry of CPython's table of slots,
 * begins with name, int and function. */
static const struct hook_file of_scope_exit = { HOOK_OF_TABLE, IN_TORCH, "__exit__", 8 };
static const struct hook_file of_slot_call = { HOOK_OF_TABLE, "PyCode_Type", "__call__", 16 };
/* pybind11 writes the address of a function that it wraps into an object on the heap, so no table
 * has it. */
static const struct hook_file of_first_called = { HOOK_OF_CODE, IN_TORCH, NULL, 0 };

/* The old library of NVTX exports its functions. */
static const struct hook_file of_nvtx = { HOOK_OF_CODE, IN_TORCH, NULL, 0 };
static const struct hook_file of_nvtx_library = { HOOK_OF_CODE, "nvtxRangePushA", NULL, 0 };

static void set_nvtx_hook(struct target *target, enum hook_id id, const char *name, unsigned args)
{
	uint64_t addr = 0;
	int err = torch__nvtx(target->python, name, &addr);

	set_hook(target, id, name, err, addr, &of_nvtx, args);
	if (err == -ENOENT)
		target->hooks[id].why_not = "this PyTorch is built without CUDA, so without NVTX";
	if (!err && !target->hooks[id].found)
		set_hook(target, id, name, err, addr, &of_nvtx_library, args);
}

/* Scopes whose end cannot be seen are not recorded: they would stay open. */
static void need_end(struct target *target, enum hook_id begin, enum hook_id end)
{
	if (target->hooks[end].found || !target->hooks[begin].found)
		return;
	target->hooks[begin].found = false;
	target->hooks[begin].why_not = "the end of such a scope cannot be probed";
}

int target__look_into_torch(struct target *target)
{
	const char *name;
	struct pycode pc;
	uint64_t addr = 0;
	int err;

	if (!target->python)
		return -ENOENT;
	err = nnmodules__call_codes(target->python, target->module_codes, MT_MAX_MODULE_CODES,
				    &target->n_module_codes);
	if (err)
		return err;
	if (target->n_module_codes &&
	    pyobj__code(target->python, target->module_codes[0], &pc) == 0) {
		target->module_self_in_cell = !strstr(pc.name, "_wrapped_call_impl");
		pycode__free(&pc);
	}
	err = torch__scope_exit(target->python, &addr);
	set_hook(target, HOOK_SCOPE_END, TORCH_SCOPE_EXIT, err, addr, &of_scope_exit, 0);
	err = nnmodules__slot_call(target->python, &addr);
	set_hook(target, HOOK_MODULE_CALL, "torch.nn.Module.tp_call", err, addr, &of_slot_call,
		 FIRST_ARG | SITE_AT_ENTRY);
	err = nnmodules__first_called(target->python, &addr, &name);
	set_hook(target, HOOK_MODULE_BOUND, name, err, addr, &of_first_called, 0);
	set_nvtx_hook(target, HOOK_RANGE_PUSH, TORCH_RANGE_PUSH, FIRST_ARG);
	set_nvtx_hook(target, HOOK_RANGE_POP, TORCH_RANGE_POP, 0);
	need_end(target, HOOK_SCOPE_BEGIN, HOOK_SCOPE_END);
	need_end(target, HOOK_RANGE_PUSH, HOOK_RANGE_POP);
	return 0;
}

/* The address of the dry-run library's table (struct dryrun_usage), if this map is of that
 * library; otherwise 0. */
static uint64_t dry_run_table(const struct proc *proc, const struct map *map)
{
	struct elf *elf = elf__open_map(proc, map);
	struct elf_sym sym;
	uint64_t bias, ret = 0;

	if (!elf)
		return 0;
	if (!elf__dynsym(elf, "memtrace_dryrun_usage", &sym) &&
	    !elf__bias(elf, map->start, map->offset, &bias))
		ret = bias + sym.value;
	elf__free(elf);
	return ret;
}

static int is_cuda_function(const char *name, const struct elf_sym *sym, void *ctx)
{
	(void)sym, (void)ctx;
	return text__starts(name, "cudaMalloc") || text__starts(name, "cudaLaunch") ||
	       text__starts(name, "cuMem") || !strcmp(name, "cuInit");
}

/* True if a file uses CUDA's functions. */
static bool imports_cuda(const struct proc *proc, const struct map *map)
{
	struct elf *elf = map->inode ? elf__open_map(proc, map) : NULL;
	bool ret = elf && elf__each_import(elf, is_cuda_function, NULL) > 0;

	elf__free(elf);
	return ret;
}

/* True if the process uses memory on a device, by the figures of the driver or of a dry run. */
static bool is_device_used(const struct proc *proc, uint64_t dry_run)
{
	struct nvml *nvml = nvml__open(proc, dry_run);
	struct nvml_figures figures = { 0 };
	bool ret = false;

	if (!nvml)
		return false;
	nvml__refresh(nvml);
	nvml__read(nvml, &figures);
	for (unsigned i = 0; i < figures.n; i++)
		ret = ret || (figures.known[i] && figures.used[i]);
	nvml__free(nvml);
	return ret;
}

/* True if the dry run found a CUDA runtime that is linked into the program: the table's fourth
 * number (struct dryrun_usage in tools/dryrun/dryrun.h). */
static bool has_linked_runtime(const struct proc *proc, uint64_t dry_run)
{
	uint32_t linked;

	return !proc__read(proc, dry_run + 12, &linked, sizeof(linked)) && linked;
}

bool target__uses_cuda(const struct target *target, const struct maps *maps)
{
	uint64_t dry_run = 0;
	size_t i;

	if (!arrival__maps_cuda(maps))
		return false;
	for (i = 0; i < maps->n && !dry_run; i++)
		dry_run = arrival__is_cuda(&maps->v[i]) ? dry_run_table(target->proc, &maps->v[i])
							: 0;
	if (!dry_run)
		return true;
	for (i = 0; i < maps->n; i++)
		if (maps->v[i].x && !arrival__is_cuda(&maps->v[i]) &&
		    imports_cuda(target->proc, &maps->v[i]))
			return true;
	return has_linked_runtime(target->proc, dry_run) || is_device_used(target->proc, dry_run);
}

static int refuse_guest(const struct target *target, enum guest_kind guest, struct failure *failure)
{
	const char *comm = proc__comm(target->proc);
	char clean[64];

	return failure__set(failure, EXIT_UNUSABLE, -ENOEXEC, "PID %d (%s) %s",
			    proc__pid(target->proc),
			    text__clean(clean, sizeof(clean), comm, strlen(comm)),
			    guest__text(guest));
}

/* Reads the map, and finds PyTorch and its hooks in it. 0 or negative with *failure. */
static int look_for_torch(struct target *target, struct failure *failure)
{
	int pid = proc__pid(target->proc), err;
	struct maps maps;

	err = proc__maps(target->proc, &maps);
	if (err == -EPERM || err == -EACCES)
		return failure__set(failure, EXIT_NOT_PERMITTED, err,
				    "not permitted to read the memory map of PID %d: %s needed; "
				    "run it with sudo",
				    pid, *caps__missing() ? caps__missing() : "CAP_SYS_PTRACE");
	if (err || !maps.n) {
		if (!err)
			maps__free(&maps);
		return failure__set(failure, EXIT_UNUSABLE, err ? err : -ESRCH, "PID %d has ended",
				    pid);
	}
	maps__free(&target->maps);
	target->maps = maps;
	target->uses_cuda = target__uses_cuda(target, &target->maps);
	torch__info(target->proc, &target->maps, &target->torch);
	target->hooks_err = torch__hooks(target->proc, &target->maps, target->hooks);
	return 0;
}

int target__look(struct target *target, struct failure *failure)
{
	int err = look_for_torch(target, failure);

	if (err)
		return err;
	look_for_python(target);
	look_for_code_dealloc(target);
	need_code_dealloc(target);
	if (guest__kind(target->proc, &target->maps) == GUEST_GVISOR)
		return refuse_guest(target, GUEST_GVISOR, failure);
	return 0;
}

int target__check_tensors(const struct target *target, struct failure *failure)
{
	const char *comm = proc__comm(target->proc);
	enum guest_kind guest;
	char clean[64];

	if (target->has_python || target->torch.found || target->uses_cuda)
		return 0;
	guest = guest__kind(target->proc, &target->maps);
	if (guest)
		return refuse_guest(target, guest, failure);
	return failure__set(
		failure, EXIT_UNUSABLE, -ENOEXEC,
		"PID %d (%s) has no Python interpreter, PyTorch or CUDA in it; give the "
		"PID of the python process itself (not of its launcher: `ps --ppid %d` "
		"lists its children), or add --host to record its host memory",
		proc__pid(target->proc), text__clean(clean, sizeof(clean), comm, strlen(comm)),
		proc__pid(target->proc));
}

int target__look_for_torch(struct target *target, struct failure *failure)
{
	int err = look_for_torch(target, failure);

	if (!err)
		look_for_code_dealloc(target);
	return err;
}

void target__look_for_python(struct target *target, struct maps *maps)
{
	maps__free(&target->maps);
	target->maps = *maps;
	hook__close_all(target->hooks);
	look_for_python(target);
	look_for_code_dealloc(target);
	need_code_dealloc(target);
}

int target__renew(struct target *target)
{
	struct maps maps;
	int err = proc__maps(target->proc, &maps);

	if (err)
		return err;
	maps__free(&target->maps);
	target->maps = maps;
	torch__info(target->proc, &target->maps, &target->torch);
	return 0;
}

struct mt_py_layout target__layout(const struct target *target)
{
	struct mt_py_layout layout;
	const struct pylayout *python;

	/* Clear the padding, too: layouts are compared byte by byte. */
	memset(&layout, 0, sizeof(layout));
	if (!target->python || !target->has_slot)
		return layout;
	python = python__layout(target->python);
	layout.tls_kind = MT_TLS_DIRECT;
	if (target->slot.kind == PYSLOT_INDIRECT)
		layout.tls_kind = MT_TLS_INDIRECT;
	else if (target->slot.kind == PYSLOT_EITHER)
		layout.tls_kind = MT_TLS_EITHER;
	layout.tls_first = target->slot.first;
	layout.tls_second = target->slot.second;
	layout.tstate_frame = python->ts_frame;
	layout.tstate_cframe = python->cframe_current != PYLAYOUT_NONE;
	layout.cframe_frame = layout.tstate_cframe ? python->cframe_current : 0;
	layout.frame_base = python->lasti_scale ? OLD_FRAME_BASE : 0;
	layout.frame_code = python->fr_code - layout.frame_base;
	layout.frame_prev = python->fr_prev - layout.frame_base;
	layout.frame_instr = python->fr_instr - layout.frame_base;
	layout.frame_owner = python->shim_owner ? python->fr_owner - layout.frame_base
						: MT_NO_OFFSET;
	layout.frame_local0 = python->fr_local0;
	layout.owner_shim = python->shim_owner;
	layout.lasti_scale = python->lasti_scale;
	layout.code_adaptive = python->lasti_scale ? 0 : python->co_code_adaptive;
	layout.tag_mask = python->tag_mask;
	layout.ob_type = python->ob_type;
	layout.frame_tlbc = python->fr_tlbc == PYLAYOUT_NONE ? MT_NO_OFFSET : python->fr_tlbc;
	layout.code_tlbc = python->fr_tlbc == PYLAYOUT_NONE ? 0 : python->co_tlbc;
	layout.code_names = python->co_filename -
			    (python->co_qualname == PYLAYOUT_NONE ? 32u : 16u);
	layout.ob_size = python->ob_size;
	layout.tp_name = python->tp_name;
	layout.tp_base = python->tp_base;
	layout.type_cell = python__symbol(target->python, "PyCell_Type");
	if (target->n_module_codes && !target->module_self_in_cell)
		layout.type_cell = 0; /* a plain local, whose type needs no check */
	return layout;
}

void target__attach_optional(const struct target *target, struct probes *probes, enum hook_id id)
{
	const struct hook *hook = &target->hooks[id];
	int err;

	if (!hook->found) {
		log_debug("%s: not probed: %s", hook__name(id), hook->why_not);
		return;
	}
	if (probes__is_off(probes, id))
		return; /* left out at this level of detail, since hits are too dear */
	if (probes__attached(probes, proc__pid(target->proc), id))
		return; /* another process that shares these programs has attached it */
	err = probes__attach(probes, proc__pid(target->proc), hook);
	if (err)
		log_debug("%s: the probe was refused: %s", hook__name(id), strerror(-err));
}

void target__open_allocator(struct target *target, const struct maps *maps)
{
	const char *why = "";

	target->alloc = cudaalloc__open(target->proc, maps, &why);
	if (!target->alloc)
		log_debug("cannot read the CUDA allocator's tables: %s", why);
}

void target__set_backend_fact(const struct target *target, struct facts *facts)
{
	enum alloc_backend b = target->alloc ? cudaalloc__backend(target->alloc) : ALLOC_NONE;

	if (b != ALLOC_NONE && b != ALLOC_UNKNOWN)
		facts__set(facts, "allocator", alloc_backend__name(b));
}

enum alloc_backend target__backend(struct target *target, struct facts *facts, uint64_t now)
{
	struct maps maps;

	if (!target->alloc && now >= target->next_alloc_look &&
	    proc__maps(target->proc, &maps) == 0) {
		target->next_alloc_look = now + ALLOC_LOOK_EVERY;
		target__open_allocator(target, &maps);
		maps__free(&maps);
	}
	if (target->alloc)
		cudaalloc__update_backend(target->alloc);
	target__set_backend_fact(target, facts);
	return target->alloc ? cudaalloc__backend(target->alloc) : ALLOC_NONE;
}

int target__cuda_devices(const struct target *target)
{
	return target->alloc && cudaalloc__backend(target->alloc) == ALLOC_NATIVE
		       ? cudaalloc__devices(target->alloc)
		       : -1;
}
