/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/torch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/arch.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "inspect/torch/pybind.h"

#define FILES_MAX 4096u
#define VERSION_TEXT_MAX (16u << 10)
#define CODE_MAX (64u << 10) /* bytes of one function; the probed ones have a few hundred */

#define ARG(n) (1u << (n))

#define ENTER_NEW "_ZN5torch8autograd8profiler25record_function_enter_newERK"

/* Functions to find in torch's libraries. args: as for site__pick(). */
static const struct want {
	enum hook_id id;
	bool required;
	unsigned args;
	const char *symbols[4]; /* by version, newest first; totals were signed before PyTorch 2.0 */
	const char *missing;
} wants[] = {
	{ HOOK_REPORT,
	  true,
	  ARG(0) | ARG(1) | ARG(2) | ARG(3) | ARG(4),
	  { "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
	    "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE" },
	  "no mapped file exports it (torch before 1.10, or torch not loaded yet)" },
	{ HOOK_OOM,
	  false,
	  ARG(0) | ARG(1) | ARG(2) | ARG(3),
	  { "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
	    "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE",
	    "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE" },
	  "no mapped file exports it (torch before 1.13)" },
	{ HOOK_CPU_NEW,
	  true,
	  ARG(1) | ARG(2),
	  { "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm" },
	  "no mapped file exports it" },
	{ HOOK_CPU_DELETE,
	  true,
	  ARG(1),
	  { "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv" },
	  "no mapped file exports it" },
	{ HOOK_EDGE,
	  false,
	  ARG(1),
	  { "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE" },
	  "no mapped file exports it: backward memory is not traced to lines of forward" },
	{ HOOK_EVALUATE,
	  false,
	  ARG(2) | SITE_AT_ENTRY,
	  { "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_"
	    "4NodeERNS0_11InputBufferE"
	    "RKS2_INS0_10ReadyQueueEE" },
	  "no mapped file exports it: backward memory is not traced to lines of forward" },
	{ HOOK_SCOPE_BEGIN,
	  false,
	  ARG(ARCH_FIRST_OF_OBJECT),
	  { ENTER_NEW "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8optionalIS7_E",
	    ENTER_NEW "SsRKSt8optionalISsE", /* built with the old ABI of std::string */
	    ENTER_NEW "SsRKN3c108optionalISsEE",
	    ENTER_NEW
	    "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKN3c108optionalIS7_EE" },
	  "no mapped file exports it: scopes of record_function are not recorded" },
};
#define WANTS (sizeof(wants) / sizeof(wants[0]))
#define SYMBOLS (sizeof(wants[0].symbols) / sizeof(wants[0].symbols[0]))

/* A mapped file; map: its first mapping. */
struct file {
	const struct map *map;
	int rank; /* lower ranks are searched first */
};

/* ---- several PyTorchs ---- */

/* True if this mapping's file is named like the library with PyTorch's Python objects. */
static bool is_libtorch_python(const struct map *map)
{
	return map->x && text__starts(map__base_name(map->path), "libtorch_python");
}

/* Folder of the libtorch_python in use: *len bytes, with the last slash. NULL: none is mapped. */
static const char *python_folder(const struct maps *maps, size_t *len)
{
	size_t i;

	for (i = 0; i < maps->n; i++) {
		if (is_libtorch_python(&maps->v[i])) {
			*len = (size_t)(map__base_name(maps->v[i].path) - maps->v[i].path);
			return maps->v[i].path;
		}
	}
	return NULL;
}

enum { RANK_THIS_TORCH, RANK_OTHER_TORCH, RANK_OTHER_FILE };

/* As torch__rank(). folder: from python_folder(), len bytes; NULL: none. */
static int rank_path(const char *path, const char *folder, size_t len)
{
	const char *base = map__base_name(path);

	if (!text__starts(base, "libc10") && !text__starts(base, "libtorch"))
		return RANK_OTHER_FILE;
	if (folder && (size_t)(base - path) == len && !memcmp(path, folder, len))
		return RANK_THIS_TORCH;
	return RANK_OTHER_TORCH;
}

int torch__rank(const struct maps *maps, const char *path)
{
	size_t len = 0;
	const char *folder = python_folder(maps, &len);

	return rank_path(path, folder, len);
}

bool torch__is_other(const struct maps *maps, const char *path)
{
	size_t len = 0;
	const char *folder = python_folder(maps, &len);

	return folder && rank_path(path, folder, len) == RANK_OTHER_TORCH;
}

/* ---- version ---- */

/* True if c can be part of a version. */
static bool is_version_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '.' || c == '+' || c == '-' || c == '_' || c == '!';
}

/* Parses "__version__ = '2.1.0'" or "__version__: str = '2.1.0'". Other expressions are ignored. */
static bool parse_version_line(const char *line, const char *end, char *buf, size_t size)
{
	static const char name[] = "__version__";
	const char *at = line + sizeof(name) - 1, *eq;
	size_t version_len = 0;
	char quote;

	if ((size_t)(end - line) < sizeof(name) - 1 || memcmp(line, name, sizeof(name) - 1))
		return false;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	if (at == end || (*at != '=' && *at != ':'))
		return false;
	eq = memchr(at, '=', (size_t)(end - at));
	if (!eq)
		return false;
	at = eq + 1;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	if (at == end || (*at != '\'' && *at != '"'))
		return false;
	quote = *at++;
	while (at + version_len < end && is_version_char(at[version_len]))
		version_len++;
	if (!version_len || version_len >= size || at + version_len == end ||
	    at[version_len] != quote)
		return false;
	memcpy(buf, at, version_len);
	buf[version_len] = '\0';
	return true;
}

/* Finds the first line that sets __version__. */
static void parse_version(const char *text, size_t len, char *buf, size_t size)
{
	const char *line = text, *end = text + len, *eol;

	while (line < end) {
		eol = memchr(line, '\n', (size_t)(end - line));
		if (!eol)
			eol = end;
		if (parse_version_line(line, eol, buf, size))
			return;
		line = eol + 1;
	}
}

/* Reads PyTorch's version from the file version.py. buf is unchanged if that is not possible. */
static void read_version(const struct proc *proc, const char *path, char *buf, size_t size)
{
	ssize_t len;
	char *text;
	int fd;

	fd = proc__open_file(proc, path);
	if (fd < 0)
		return;
	text = malloc(VERSION_TEXT_MAX);
	len = text ? io__read(fd, text, VERSION_TEXT_MAX) : -1;
	if (len > 0)
		parse_version(text, (size_t)len, buf, size);
	free(text);
	close(fd);
}

/* Writes the path of PyTorch's version.py, from that of a library: ".../torch/lib/libtorch_cpu.so"
 * or ".../torch/_C.cpython-312.so" -> ".../torch/version.py". False: not such a library. */
static bool version_path(const char *lib, char *buf, size_t size)
{
	const char *base = map__base_name(lib);
	size_t dir = (size_t)(base - lib);
	int written;

	if (text__starts(base, "_C.") && dir >= 7 && !memcmp(base - 7, "/torch/", 7))
		; /* next to version.py */
	else if ((text__starts(base, "libtorch") || text__starts(base, "libc10")) && dir >= 11 &&
		 !memcmp(base - 11, "/torch/lib/", 11))
		dir -= 4; /* without "lib/" */
	else
		return false;
	written = snprintf(buf, size, "%.*sversion.py", (int)dir, lib);
	return written > 0 && (size_t)written < size;
}

/* Reads PyTorch's version from the version.py next to its libraries: those of the lowest rank that
 * has any (see torch__rank()). A deleted library means that PyTorch was replaced since: the
 * version.py is another version's. */
static void find_version(const struct proc *proc, const struct maps *maps, char *buf, size_t size)
{
	const char *last = "";
	char path[4096];
	size_t i, len = 0;
	const char *folder = python_folder(maps, &len);
	bool any = false;
	int rank;

	for (rank = RANK_THIS_TORCH; rank <= RANK_OTHER_FILE && !any; rank++) {
		for (i = 0; i < maps->n && !buf[0]; i++) {
			const struct map *map = &maps->v[i];

			if (map->path[0] != '/' || !strcmp(map->path, last) ||
			    rank_path(map->path, folder, len) != rank ||
			    !version_path(map->path, path, sizeof(path)))
				continue;
			last = map->path;
			any = true;
			if (!map->deleted)
				read_version(proc, path, buf, size);
		}
	}
}

void torch__info(const struct proc *proc, const struct maps *maps, struct torch_info *ret)
{
	struct torch_info info = { 0 };
	const char *base, *last = "";
	size_t i;

	for (i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];

		if (map->path[0] != '/' || !strcmp(map->path, last))
			continue;
		last = map->path;
		base = map__base_name(map->path);
		if (text__starts(base, "libc10_cuda.") || text__starts(base, "libc10_cuda-"))
			info.cuda = true;
		else if (text__starts(base, "libc10.") || text__starts(base, "libc10-"))
			info.found = true;
		if (text__starts(base, "libcudart") && !info.cuda_runtime[0])
			snprintf(info.cuda_runtime, sizeof(info.cuda_runtime), "%s", base);
	}
	find_version(proc, maps, info.version, sizeof(info.version));
	*ret = info;
}

const char *hook__name(enum hook_id id)
{
#define NAME(id, program, twin, record, off, name) [HOOK_##id] = name,
	static const char *const names[HOOK_NR] = { MT_HOOKS(NAME) };
#undef NAME

	return (unsigned)id < HOOK_NR ? names[id] : "unknown";
}

/* ---- one hook ---- */

/* Writes the file's path, marked if it was deleted. A long path lacks its beginning. */
static void name_file(const struct map *map, char *buf, size_t size)
{
	const char *mark = map->deleted ? " (deleted)" : "", *path = map->path;
	const char *cut = "";
	size_t len = strlen(path);
	size_t room = size - 1 - strlen(mark);
	int written;

	if (len > room) {
		cut = "...";
		path += len - (room - 3);
	}
	written = snprintf(buf, size, "%s%s", cut, path);
	if (written > 0 && (size_t)written < size)
		snprintf(buf + written, size - (size_t)written, "%s", mark);
}

/* Picks the site from the file's code, since memory may contain breakpoints of others. Reading also
 * brings in the page where the kernel sets the breakpoint. */
static int pick_site(const struct elf *elf, uint64_t vaddr, uint64_t func_size, unsigned args,
		     struct site *ret)
{
	/* unknown size: up to the end of the segment */
	static const size_t guesses[] = { 256, 64, 16 };
	uint8_t *code;
	size_t len, i;
	int err;

	len = func_size ?: guesses[0];
	if (len > CODE_MAX)
		len = CODE_MAX;
	code = malloc(len);
	if (!code)
		return -ENOMEM;
	err = elf__read(elf, vaddr, code, len);
	for (i = 1; err == -ERANGE && !func_size && i < sizeof(guesses) / sizeof(guesses[0]); i++) {
		len = guesses[i];
		err = elf__read(elf, vaddr, code, len);
	}
	if (!err)
		err = site__pick(elf__machine(elf), code, len, func_size, args, ret);
	free(code);
	return err;
}

static void close_file(struct hook *hook)
{
	elf__free(hook->elf);
	hook->elf = NULL;
}

void hook__close_all(struct hook *hooks)
{
	for (size_t i = 0; i < HOOK_NR; i++)
		close_file(&hooks[i]);
	memset(hooks, 0, HOOK_NR * sizeof(*hooks));
}

/* The hook cannot be set: closes its file. why: static text. Returns err. */
static int refuse_hook(struct hook *hook, int err, const char *why)
{
	close_file(hook);
	hook->found = false;
	hook->why_not = why;
	return err;
}

/*
 * Picks the site of a function and sets the hook. map: the executable mapping with the function.
 * vaddr, offset, func_size: the function's in the file; size 0: not known. args: as for
 * site__pick(). 0 or -errno with why_not.
 */
static int set_hook(const struct proc *proc, struct elf *elf, const struct map *map, uint64_t vaddr,
		    uint64_t offset, uint64_t func_size, unsigned args, struct hook *hook)
{
	char name[ELF_NAME];
	struct site site;
	int err;

	if (!site__is_native(elf__machine(elf)))
		return refuse_hook(hook, -ENOEXEC, "its file is code for another machine");
	err = pick_site(elf, vaddr, func_size,
			args | (proc__shadow_stack(proc) ? SITE_NO_CALLS : 0), &site);
	if (err == -ENOTSUP)
		return refuse_hook(
			hook, err,
			"it begins with a nop that the kernel may turn into a call, which "
			"would break forked children, "
			"and nothing behind it can be probed");
	if (err == -EINVAL)
		return refuse_hook(hook, err, "no instruction that can be probed at its beginning");
	if (err)
		return refuse_hook(hook, err, "its code cannot be read from its file");
	if (!elf__name(elf, name))
		return refuse_hook(
			hook, -ESTALE,
			"its file cannot be named to the kernel: it was replaced on disk, and "
			"map_files cannot be read");
	close_file(hook);
	hook->elf = elf__share(elf);
	hook->inode = map->inode;
	hook->dev_major = map->dev_major;
	hook->dev_minor = map->dev_minor;
	name_file(map, hook->file, sizeof(hook->file));
	hook->offset = offset + site.offset;
	hook->site = site;
	hook->why_not = NULL;
	hook->found = true;
	return 0;
}

/* ---- torch's own ---- */

/* Fills the hook if the file exports one of its symbols. 0, also if not; -ESTALE: the file cannot
 * be named; other -errno: the symbol cannot be used. */
static int hook_from_file(const struct proc *proc, const struct maps *maps, struct elf *elf,
			  const struct map *file, const struct want *w, struct hook *hook)
{
	const struct map *map;
	struct elf_sym sym;
	const char *name;
	uint64_t offset;
	unsigned i;

	for (i = 0; i < SYMBOLS && (name = w->symbols[i]); i++)
		if (!elf__dynsym(elf, name, &sym) && sym.type == 2 /* STT_FUNC */)
			break;
	if (i == SYMBOLS || !name)
		return 0;
	if (hook->found) {
		hook->others++; /* a second PyTorch, or a copy of the library */
		return 0;
	}
	snprintf(hook->symbol, sizeof(hook->symbol), "%s", name);
	map = elf__vaddr_to_offset(elf, sym.value, &offset) ? NULL
							    : maps__find_code(maps, file, offset);
	if (!map)
		return refuse_hook(hook, -ENOENT, "its code is not mapped");
	hook->fixed = !elf__is_memory(elf); /* size and offset are from the file */
	return set_hook(proc, elf, map, sym.value, offset, sym.size, w->args, hook);
}

/* By rank, then in the order of the maps. */
static int file_cmp(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank - y->rank;
	return x->map < y->map ? -1 : x->map > y->map;
}

/* Lists the distinct files with an executable mapping, by rank. */
static size_t list_files(const struct maps *maps, struct file *files, size_t max)
{
	size_t n = 0, len = 0, i, k;
	const char *folder = python_folder(maps, &len);

	for (i = 0; i < maps->n && n < max; i++) {
		const struct map *map = &maps->v[i];

		if (!map->x || !map->inode || map->path[0] != '/')
			continue;
		for (k = 0; k < n && !map__same_file(files[k].map, map); k++)
			;
		if (k == n)
			files[n++] = (struct file){ map, rank_path(map->path, folder, len) };
	}
	qsort(files, n, sizeof(*files), file_cmp);
	return n;
}

/* True if all functions were found without which nothing can be recorded. */
static bool required_found(const struct hook *hooks)
{
	size_t i;

	for (i = 0; i < WANTS; i++)
		if (wants[i].required && !hooks[wants[i].id].found)
			return false;
	return true;
}

/* Sets all hooks to "not found", with the reason. */
static void init_hooks(struct hook *hooks)
{
	size_t i;

	hook__close_all(hooks);
	for (i = 0; i < HOOK_NR; i++) {
		hooks[i].id = (enum hook_id)i;
		hooks[i].why_not = "lies in the interpreter, which was not looked at";
	}
	for (i = 0; i < WANTS; i++) {
		hooks[wants[i].id].required = wants[i].required;
		hooks[wants[i].id].why_not = wants[i].missing;
		snprintf(hooks[wants[i].id].symbol, sizeof(hooks[0].symbol), "%s",
			 wants[i].symbols[0]);
	}
}

/* Sets why_not of the hooks that were not found. err: of opening a library. */
static void explain_unopened(struct hook *hooks, int err)
{
	const char *why = "torch's library cannot be opened";
	size_t i;

	if (err == -EACCES || err == -EPERM)
		why = "torch's library cannot be opened: no permission (a FUSE mount of another "
		      "user is closed to root, too)";
	else if (err == -ESTALE || err == -ENOENT)
		why = "torch's library cannot be opened: replaced, and map_files is not permitted";
	for (i = 0; i < WANTS; i++)
		if (!hooks[wants[i].id].found)
			hooks[wants[i].id].why_not = why;
}

/* Searches the files by rank; those that are not PyTorch's only while a required hook is missing. */
int torch__hooks(const struct proc *proc, const struct maps *maps, struct hook *hooks)
{
	int unopened = 0;
	struct file *files;
	size_t n, i, k;
	struct elf *elf;

	init_hooks(hooks);
	files = calloc(FILES_MAX, sizeof(*files));
	if (!files)
		return -ENOMEM;
	n = list_files(maps, files, FILES_MAX);
	for (i = 0; i < n; i++) {
		if (files[i].rank == RANK_OTHER_FILE && required_found(hooks))
			break;
		elf = elf__open_map(proc, files[i].map);
		if (!elf && files[i].rank != RANK_OTHER_FILE && errno != ENOEXEC)
			unopened = -errno;
		for (k = 0; elf && k < WANTS; k++)
			if (hook_from_file(proc, maps, elf, files[i].map, &wants[k],
					   &hooks[wants[k].id]) == -ESTALE)
				unopened = unopened ?: -ESTALE;
		elf__free(elf);
	}
	free(files);
	if (required_found(hooks))
		return 0;
	if (!proc__alive(proc))
		return -ESRCH;
	if (unopened)
		explain_unopened(hooks, unopened);
	if (unopened == -EACCES || unopened == -EPERM)
		return -EPERM;
	return unopened ? -ESTALE : -ENOENT;
}

/* Functions that are found by an address in the process's memory, which the process may write. */

#define PLACES 64 /* pointers to one function in a file's data */
#define NAME_MAX_LEN 64

/* True if this is the file of `in`, judged by an exported symbol: a user can give any file any
 * path. */
static bool is_hook_file(const struct elf *elf, const struct hook_file *in)
{
	struct elf_sym sym;

	return !elf__dynsym(elf, in->symbol, &sym);
}

/* True if the file has this NUL-terminated text at vaddr. */
static bool has_text(const struct elf *elf, uint64_t vaddr, const char *text)
{
	char buf[NAME_MAX_LEN];
	size_t len = strlen(text) + 1;

	return len <= sizeof(buf) && !elf__read(elf, vaddr, buf, len) && !memcmp(buf, text, len);
}

/* For HOOK_OF_TYPE: true if the object that the file exports as in->symbol has a pointer to the
 * function at in->offset. */
static bool type_points_to(const struct elf *elf, const struct hook_file *in, uint64_t function)
{
	struct elf_sym sym;
	uint64_t value;

	return !elf__dynsym(elf, in->symbol, &sym) &&
	       !elf__pointer(elf, sym.value + in->offset, &value) && value == function;
}

/* For HOOK_OF_TABLE: true if the file's data has a table entry that begins with a pointer to the
 * text in->name and has a pointer to the function at in->offset, like a PyMethodDef. */
static bool table_points_to(const struct elf *elf, const struct hook_file *in, uint64_t function)
{
	uint64_t at[PLACES], value, name;
	size_t i, n = elf__pointers_to(elf, function, at, PLACES);

	for (i = 0; i < n; i++) {
		if (at[i] >= in->offset && !elf__pointer(elf, at[i] - in->offset, &name) &&
		    has_text(elf, name, in->name) && !elf__pointer(elf, at[i], &value) &&
		    value == function)
			return true;
	}
	return false;
}

/* True if the file itself confirms the function, as in->source says. */
static bool is_fixed(const struct elf *elf, const struct hook_file *in, uint64_t function)
{
	switch (in->source) {
	case HOOK_OF_TYPE:
		return type_points_to(elf, in, function);
	case HOOK_OF_TABLE:
		return table_points_to(elf, in, function);
	default:
		return false;
	}
}

/* Sets the function's virtual address in its file and its file offset. 0 or -errno with why_not. */
static int locate_function(const struct elf *elf, const struct map *map, uint64_t addr,
			   struct hook *hook, uint64_t *vaddr, uint64_t *offset)
{
	uint64_t bias = 0;
	int err = elf__bias(elf, map->start, map->offset, &bias);

	*vaddr = addr - bias;
	/* must match the mapping, or the probe would be set elsewhere */
	if (err || elf__vaddr_to_offset(elf, *vaddr, offset) ||
	    *offset != addr - map->start + map->offset)
		return refuse_hook(hook, -ERANGE, "its file does not match its mapping");
	return 0;
}

/* As hook__at_address(), for a function in the open file elf. */
static int fill_hook(const struct proc *proc, struct elf *elf, const struct map *map, uint64_t addr,
		     const struct hook_file *in, unsigned args, struct hook *hook)
{
	uint64_t vaddr, offset, start, size;
	int err;

	if (!is_hook_file(elf, in))
		return refuse_hook(hook, -EXDEV,
				   "its address is in another file than it has to be");
	err = locate_function(elf, map, addr, hook, &vaddr, &offset);
	if (err)
		return err;
	if (elf__function(elf, vaddr, &start, &size))
		size = 0;
	else if (start != vaddr)
		return refuse_hook(hook, -EINVAL, "its address is not where a function begins");
	hook->fixed = !elf__is_memory(elf) && is_fixed(elf, in, vaddr);
	return set_hook(proc, elf, map, vaddr, offset, size, args, hook);
}

int hook__at_address(const struct proc *proc, const struct maps *maps, uint64_t addr,
		     const struct hook_file *in, unsigned args, struct hook *hook)
{
	const struct map *map = maps__find(maps, addr);
	struct elf *elf;
	int err;

	if (!map || !map->x)
		return refuse_hook(hook, -EFAULT, "its address is not in mapped code");
	if (!map->inode)
		return refuse_hook(hook, -ENOENT, "its code is not from a file");
	elf = elf__open_map(proc, map);
	if (!elf)
		return refuse_hook(hook, -errno,
				   errno == ENOEXEC || errno == EIO
					   ? "its file is not an ELF file that can be read"
					   : "its file cannot be opened");
	err = fill_hook(proc, elf, map, addr, in, args, hook);
	elf__free(elf);
	return err;
}

/* PyMethodDescrObject.d_method and PyMethodDef.ml_meth (Include/cpython/descrobject.h,
 * methodobject.h), all versions. D_METHOD counts from the object's type. */
#define D_METHOD 32
#define ML_METH 8

int torch__scope_exit(const struct python *py, uint64_t *addr)
{
	const struct proc *proc = python__proc(py);
	uint64_t module, type, descr, descr_type, def, meth;
	char name[64];
	int err;

	err = pyobj__module(py, "torch._C", &module)
		      ?: pyobj__module_attr(py, module, "DisableTorchFunctionSubclass", &type);
	if (err)
		return err;
	err = pyobj__type_attr(py, type, "__exit__", &descr) ?: pyobj__type(py, descr, &descr_type);
	if (err)
		return err;
	err = pyobj__type_name(py, descr_type, name, sizeof(name));
	if (err)
		return err;
	if (strcmp(name, "method_descriptor"))
		return -EBADMSG;
	err = proc__read_u64(proc, descr + python__layout(py)->ob_type + D_METHOD, &def)
		      ?: proc__read_u64(proc, def + ML_METH, &meth);
	if (!err)
		*addr = meth;
	return err;
}

int torch__nvtx(const struct python *py, const char *name, uint64_t *addr)
{
	uint64_t module, nvtx;
	int err = pyobj__module(py, "torch._C", &module)
			  ?: pyobj__module_attr(py, module, "_nvtx", &nvtx);

	return err ?: pybind__word(py, nvtx, name, PYBIND_FUNCTION, addr);
}
