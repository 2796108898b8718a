/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the file of the interpreter, its address and its exported symbols. */
#include "inspect/python.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "inspect/arch.h"
#include "inspect/pyobj.h"
#include "inspect/python/pyinternal.h"

/* Finds the Python version and checks the layout. It compares three sources: Py_Version (3.11 on)
 * or sys.hexversion, _Py_DebugOffsets (3.13 on), and PyCode_Type's members. */

#define COOKIE "xdebugpy"
#define MAX_MEMBERS 64
#define MAX_MEMBER_NAME 32

/* Offsets in PyMemberDef. */
#define MEMBER_SIZE 40
#define MEMBER_NAME 0
#define MEMBER_OFFSET 16

/* Byte positions in _Py_DebugOffsets of 3.13 to 3.15: of a field's offset, and of its structure's
 * size. The same in free-threaded builds. */
struct described {
	const char *name; /* name of the field in struct pylayout */
	size_t field;	  /* offset in struct pylayout */
	uint16_t pos[3];  /* 3.13, 3.14, 3.15 */
	uint16_t size[3]; /* 0: limited by MAX_STRUCT only */
	uint8_t width;	  /* size of the field, bytes */
};

static const struct described described[] = {
#define D(f, p13, p14, p15, s13, s14, s15, w)                                                      \
	{                                                                                          \
#f, offsetof(struct pylayout, f), { p13, p14, p15 }, { s13, s14, s15 }, w          \
	}
	D(rt_interp_head, 40, 40, 40, 24, 24, 24, 8),
	D(is_next, 64, 64, 64, 48, 48, 48, 8),
	D(is_threads, 72, 72, 72, 48, 48, 48, 8),
	D(is_modules, 88, 96, 96, 48, 48, 48, 8),
	D(ts_next, 168, 192, 192, 152, 176, 176, 8),
	D(ts_interp, 176, 200, 200, 152, 176, 176, 8),
	D(ts_frame, 184, 208, 208, 152, 176, 176, 8),
	D(ts_thread_id, 192, 216, 240, 152, 176, 176, 8),
	D(ts_native_id, 200, 224, 248, 152, 176, 176, 8),
	D(fr_prev, 232, 256, 320, 224, 248, 312, 8),
	D(fr_code, 240, 264, 328, 224, 248, 312, 8),
	D(fr_instr, 248, 272, 336, 224, 248, 312, 8),
	D(fr_local0, 256, 280, 344, 224, 248, 312, 8),
	D(fr_owner, 264, 288, 352, 224, 248, 312, 1),
	D(co_filename, 280, 320, 384, 272, 312, 376, 8),
	D(co_name, 288, 328, 392, 272, 312, 376, 8),
	D(co_qualname, 296, 336, 400, 272, 312, 376, 8),
	D(co_linetable, 304, 344, 408, 272, 312, 376, 8),
	D(co_firstlineno, 312, 352, 416, 272, 312, 376, 4),
	D(co_argcount, 320, 360, 424, 272, 312, 376, 4),
	D(co_code_adaptive, 344, 384, 448, 272, 312, 376, 1),
	D(ob_type, 360, 408, 472, 352, 400, 464, 8),
	D(tp_name, 376, 424, 488, 368, 416, 480, 8),
	D(tp_flags, 392, 440, 504, 368, 416, 480, 8),
	D(tuple_item, 408, 456, 552, 400, 448, 544, 8),
	D(ma_keys, 456, 536, 632, 448, 528, 624, 8),
	D(ma_values, 464, 544, 640, 448, 528, 624, 8),
	D(bytes_val, 528, 608, 704, 512, 592, 688, 1),
	D(str_state, 544, 624, 720, 536, 616, 712, 4),
	D(str_length, 552, 632, 728, 536, 616, 712, 8),
	D(str_ascii_size, 560, 640, 736, 536, 616, 712, 0),
#undef D
};

#define DEBUG_OFFSETS_MAX 888 /* sizeof(_Py_DebugOffsets) in 3.15, the largest */
/* PyInterpreterState has hundreds of KiB; the fields needed are below this offset. */
#define MAX_STRUCT 60000

/* Replaces the table's offsets by the interpreter's own, if these are plausible. */
static int apply_debug_offsets(struct python *py, const uint8_t *block, const char **why)
{
	size_t col = py->minor - 13; /* column of the table */
	struct pylayout layout = py->layout;

	for (size_t i = 0; i < sizeof(described) / sizeof(described[0]); i++) {
		const struct described *field = &described[i];
		uint64_t off = proc__word(block + field->pos[col]);
		uint64_t size = proc__word(block + field->size[col]);

		if (off > MAX_STRUCT || off + field->width > size)
			return python__refuse(
				why, -EBADMSG,
				"_Py_DebugOffsets of Python 3.%d puts %s at %llu of %llu bytes",
				py->minor, field->name, (unsigned long long)off,
				(unsigned long long)size);
		*(uint16_t *)((char *)&layout + field->field) = (uint16_t)off;
	}
	py->layout = layout;
	return 0;
}

/* Header of _Py_DebugOffsets: cookie, version, whether the build is free-threaded. */
#define VERSION_AT 8
#define FREE_THREADED_AT 16

/* Reads _Py_DebugOffsets into block (DEBUG_OFFSETS_MAX bytes) and checks its header. */
static int read_debug_offsets(struct python *py, uint32_t hexversion, uint8_t *block,
			      const char **why)
{
	uint64_t version;
	int err;

	err = proc__read(py->proc, py->runtime, block, DEBUG_OFFSETS_MAX);
	if (err)
		return python__refuse(why, err, "_PyRuntime cannot be read: %s", strerror(-err));
	if (memcmp(block, COOKIE, 8))
		return python__refuse(
			why, -EBADMSG,
			"_PyRuntime of Python 3.%d does not begin with _Py_DebugOffsets",
			py->minor);
	version = proc__word(block + VERSION_AT);
	if (version != hexversion)
		return python__refuse(why, -EBADMSG,
				      "_Py_DebugOffsets is of version %#llx, Py_Version is %#x",
				      (unsigned long long)version, hexversion);
	return 0;
}

static int unknown_version(int major, int minor, const char **why)
{
	return python__refuse(
		why, -ENOTSUP,
		"Python %d.%d is not known to this version; known: " PYLAYOUT_VERSIONS, major,
		minor);
}

/* Sets the version, and the layout from the table. False: the table has no such version. */
static bool use_row(struct python *py, int major, int minor, int micro, bool free_threaded)
{
	const struct pylayout *row = pylayout__find(major, minor, free_threaded);

	py->major = major;
	py->minor = minor;
	py->micro = micro;
	if (row)
		py->layout = *row;
	return row;
}

/* From 3.11 on: Py_Version, at addr, has the version. From 3.13 on, _Py_DebugOffsets also has
 * offsets, and tells whether the build is free-threaded: the table has both builds of these
 * versions. */
static int identify_exported(struct python *py, uint64_t addr, const char **why)
{
	uint8_t block[DEBUG_OFFSETS_MAX];
	uint32_t version, level;
	int err;

	err = proc__read_u32(py->proc, addr, &version);
	if (err)
		return python__refuse(why, err, "Py_Version cannot be read: %s", strerror(-err));
	if (!use_row(py, version >> 24, (version >> 16) & 0xff, (version >> 8) & 0xff,
		     /*free_threaded=*/false))
		return unknown_version(py->major, py->minor, why);
	level = (version >> 4) & 0xf;
	if (level == 0xa || level == 0xb)
		return python__refuse(
			why, -ENOTSUP,
			"a pre-release of Python %d.%d (%#x), whose layout may differ", py->major,
			py->minor, version);
	if (py->minor < 13)
		return 0;
	err = read_debug_offsets(py, version, block, why);
	if (err)
		return err;
	if (!use_row(py, py->major, py->minor, py->micro, proc__word(block + FREE_THREADED_AT)))
		return unknown_version(py->major, py->minor, why);
	return apply_debug_offsets(py, block, why);
}

/* Minor version in a file name ("libpython3.8.so.1.0", "python3.8"); -1: none. */
static int parse_minor(const char *name)
{
	static const char before[] = "python3.";
	const char *base = strrchr(name, '/'), *at;
	int minor;

	at = strstr(base ? base : name, before);
	if (!at)
		return -1;
	at += strlen(before);
	if (!isdigit((unsigned char)at[0]))
		return -1;
	minor = at[0] - '0';
	if (isdigit((unsigned char)at[1])) /* two digits at most */
		minor = minor * 10 + at[1] - '0';
	return minor;
}

/* Reads sys.hexversion, an int of one 30-bit digit. 0: the layout does not lead to it. */
static uint32_t hexversion_of_sys(const struct python *py)
{
	uint64_t sys, obj, size;
	uint32_t digit;

	if (pyobj__module(py, "sys", &sys) || pyobj__module_attr(py, sys, "hexversion", &obj) ||
	    proc__read_u64(py->proc, obj + py->layout.ob_size, &size) || size != 1 ||
	    proc__read_u32(py->proc, obj + py->layout.ob_size + 8, &digit))
		return 0;
	return digit;
}

/* To 3.10 no symbol exports the version. Tries the rows of the table of layouts from 3.8 on: a row
 * is right if it leads to a sys.hexversion of the same version. If sys does not exist yet, the
 * file's name decides, and the micro version is not known. */
static int identify_by_sys(struct python *py, const char **why)
{
	int named = parse_minor(elf__soname(py->file[py->nr_files - 1].elf));
	uint32_t hex;

	for (size_t i = 0; named < 0 && i < py->nr_files; i++)
		named = parse_minor(py->file[i].path);
	for (int minor = 8; minor <= 10; minor++) {
		if (!use_row(py, /*major=*/3, minor, /*micro=*/-1, /*free_threaded=*/false))
			continue;
		hex = hexversion_of_sys(py);
		/* one byte each: major, minor, micro, and the release level */
		if (hex >> 16 == (0x300u | (unsigned)minor)) {
			py->micro = (hex >> 8) & 0xff;
			return 0;
		}
	}
	if (named < 0)
		return python__refuse(why, -ENOTSUP, "a Python before 3.11 of unknown version (%s)",
				      py->file[0].path);
	if (named > 10 && pylayout__find(/*major=*/3, named, /*free_threaded=*/false))
		return python__refuse(why, -ENOTSUP,
				      "a Python 3.%d that does not export Py_Version", named);
	if (!use_row(py, /*major=*/3, named, /*micro=*/-1, /*free_threaded=*/false))
		return unknown_version(3, named, why);
	return 0;
}

/* Sets version and layout from the file and the process. 0 or -errno with *why set. */
static int identify_version(struct python *py, const char **why)
{
	uint64_t addr = python__symbol(py, "Py_Version");

	return addr ? identify_exported(py, addr, why) : identify_by_sys(py, why);
}

/* Reads a name byte by byte, since the mapping may end after it. */
static int read_name(const struct python *py, uint64_t addr, char *buf, size_t size)
{
	int err;

	for (size_t n = 0; n < size; n++) {
		err = proc__read(py->proc, addr + n, &buf[n], 1);
		if (err)
			return err;
		if (!buf[n])
			return 0;
	}
	return -E2BIG;
}

/* Members of PyCode_Type, with their offset in struct pylayout. */
static const struct member {
	const char *name;
	size_t field;
	int since, until; /* range of minor versions that have this member */
} members[] = {
	{ "co_argcount", offsetof(struct pylayout, co_argcount), 8, 99 },
	{ "co_flags", offsetof(struct pylayout, co_flags), 8, 99 },
	{ "co_firstlineno", offsetof(struct pylayout, co_firstlineno), 8, 99 },
	{ "co_filename", offsetof(struct pylayout, co_filename), 8, 99 },
	{ "co_name", offsetof(struct pylayout, co_name), 8, 99 },
	{ "co_qualname", offsetof(struct pylayout, co_qualname), 11, 99 },
	{ "co_lnotab", offsetof(struct pylayout, co_linetable), 8, 9 },
	{ "co_linetable", offsetof(struct pylayout, co_linetable), 10, 99 },
};
#define NR_MEMBERS (sizeof(members) / sizeof(members[0]))

static bool version_has_member(const struct python *py, size_t i)
{
	return py->minor >= members[i].since && py->minor <= members[i].until;
}

/* Compares a member's offset with the layout. Sets bit i of *seen for members[i]. */
static int check_member(const struct python *py, const char *name, uint64_t offset, unsigned *seen,
			const char **why)
{
	for (size_t i = 0; i < NR_MEMBERS; i++) {
		const uint16_t *ours = (const void *)((const char *)&py->layout + members[i].field);

		if (strcmp(name, members[i].name) || !version_has_member(py, i))
			continue;
		if (offset != *ours)
			return python__refuse(why, -EBADMSG,
					      "Python 3.%d keeps %s at %llu, not at %u as known",
					      py->minor, name, (unsigned long long)offset, *ours);
		*seen |= 1u << i;
	}
	return 0;
}

/* Checks the PyMemberDef table of PyCode_Type: all known members, each at the layout's offset. */
static int check_members(const struct python *py, uint64_t table, const char **why)
{
	uint8_t def[MEMBER_SIZE];
	char name[MAX_MEMBER_NAME];
	unsigned seen = 0;
	int err = 0;

	for (size_t i = 0; i < MAX_MEMBERS; i++) {
		err = proc__read(py->proc, table + i * MEMBER_SIZE, def, sizeof(def));
		if (err || !proc__word(def + MEMBER_NAME))
			break;
		err = read_name(py, proc__word(def + MEMBER_NAME), name, sizeof(name));
		if (err)
			break;
		err = check_member(py, name, proc__word(def + MEMBER_OFFSET), &seen, why);
		if (err)
			return err;
	}
	if (err)
		return python__refuse(why, err == -E2BIG ? -EBADMSG : err,
				      "the members of PyCode_Type cannot be read: %s",
				      strerror(-err));
	for (size_t i = 0; i < NR_MEMBERS; i++) {
		if (version_has_member(py, i) && !(seen & (1u << i)))
			return python__refuse(why, -EBADMSG,
					      "PyCode_Type of Python 3.%d does not list %s",
					      py->minor, members[i].name);
	}
	return 0;
}

int python__cross_check(const struct python *py, const char **why)
{
	uint64_t code = python__symbol(py, "PyCode_Type");
	uint64_t type = python__symbol(py, "PyType_Type");
	const struct pylayout *layout = &py->layout;
	uint64_t interp, of_code, basicsize, table;
	int err;

	err = proc__read_u64(py->proc, py->runtime + layout->rt_interp_head, &interp)
		      ?: proc__read_u64(py->proc, code + layout->ob_type, &of_code);
	if (!err)
		err = proc__read_u64(py->proc, code + layout->tp_basicsize, &basicsize)
			      ?: proc__read_u64(py->proc, code + layout->tp_members, &table);
	if (err)
		return python__refuse(why, err, "the interpreter's data cannot be read: %s",
				      strerror(-err));
	if (!interp || !of_code)
		return python__refuse(why, -EAGAIN, "Python %d.%d is still starting, or ending",
				      py->major, py->minor);
	if (of_code != type)
		return python__refuse(
			why, -EBADMSG,
			"PyCode_Type is not a type: %s lies elsewhere than its mappings say",
			py->file[py->nr_files - 1].path);
	if (layout->co_code_adaptive != PYLAYOUT_NONE && basicsize != layout->co_code_adaptive)
		return python__refuse(
			why, -EBADMSG,
			"Python 3.%d keeps co_code_adaptive at %llu, not at %u as known", py->minor,
			(unsigned long long)basicsize, layout->co_code_adaptive);
	return check_members(py, table, why);
}

#define MAX_FILES 4096 /* mapped files examined; torch brings a few hundred */

/* Files of lower ranks are examined first: 0 the executable, 1 files named like an interpreter, 2
 * others. */
static int rank_file(const struct map *map, const char *exe)
{
	const char *base = strrchr(map->path, '/');

	if (*exe && !strcmp(map->path, exe))
		return 0;
	if (base && (text__starts(base, "/libpython") || text__starts(base, "/python")))
		return 1;
	return 2;
}

struct candidate {
	const struct map *map;
	int rank;
	size_t at; /* order of the maps, within a rank */
};

static int by_rank(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->rank != y->rank ? x->rank - y->rank : (x->at > y->at) - (x->at < y->at);
}

/* Lists one executable mapping of each file. Data files have none. */
static size_t list_candidates(const struct proc *proc, const struct maps *maps,
			      struct candidate *list)
{
	const struct map *last = NULL;
	char exe[PATH_MAX];
	size_t n = 0;

	proc__exe(proc, exe, sizeof(exe));
	for (size_t i = 0; i < maps->n && n < MAX_FILES; i++) {
		const struct map *map = &maps->v[i];

		if (!map->x || !map->inode || map->path[0] != '/' ||
		    (last && map__same_file(last, map) && !strcmp(last->path, map->path)))
			continue;
		last = map;
		list[n].map = map;
		list[n].rank = rank_file(map, exe);
		list[n].at = n;
		n++;
	}
	qsort(list, n, sizeof(*list), by_rank);
	return n;
}

/* Opens a file that defines the symbol. 0: the caller owns *ret. */
static int open_file(const struct proc *proc, const struct map *map, const char *symbol,
		     struct pyfile *ret)
{
	struct elf_sym sym;
	struct pyfile file;
	int err;

	file.elf = elf__open_map(proc, map);
	if (!file.elf)
		return -errno;
	err = elf__dynsym(file.elf, symbol, &sym)
		      ?: elf__bias(file.elf, map->start, map->offset, &file.bias);
	if (err)
		goto out;
	err = -ENOMEM;
	file.path = strdup(map->path);
	if (!file.path)
		goto out;
	*ret = file;
	return 0;
out:
	elf__free(file.elf);
	return err;
}

/* Finds the first file that defines the symbol. -ENOENT, or the error of opening the most likely
 * file. */
static int find_file(const struct proc *proc, const struct candidate *list, size_t n,
		     const char *symbol, struct pyfile *ret)
{
	int err, likely_err = -ENOENT;

	for (size_t i = 0; i < n; i++) {
		err = open_file(proc, list[i].map, symbol, ret);
		if (!err || err == -ENOMEM || err == -ESRCH)
			return err;
		if (list[i].rank < 2 && err != -ENOENT && err != -ENOEXEC)
			likely_err = err;
	}
	return likely_err;
}

/* Opens the file with _PyRuntime and, if that one does not export PyCode_Type, the file that does. */
static int find_files(struct python *py, const struct maps *maps, const char **why)
{
	struct candidate *list = calloc(MAX_FILES, sizeof(*list));
	struct elf_sym sym;
	size_t n;
	int err;

	if (!list)
		return python__refuse(why, -ENOMEM, "out of memory");
	n = list_candidates(py->proc, maps, list);
	err = find_file(py->proc, list, n, "_PyRuntime", &py->file[0]);
	if (err == -ENOENT) {
		python__refuse(why, err,
			       "no Python in the process: none of its %zu mapped programs and "
			       "libraries is an interpreter",
			       n);
		goto out;
	}
	if (err) {
		python__refuse(why, err, "the process's files cannot be read: %s", strerror(-err));
		goto out;
	}
	py->nr_files = 1;
	if (elf__dynsym(py->file[0].elf, "PyCode_Type", &sym)) {
		err = find_file(py->proc, list, n, "PyCode_Type", &py->file[1]);
		if (err) {
			python__refuse(why, err == -ENOENT ? -ENOTSUP : err,
				       "%s has _PyRuntime, but no mapped file exports PyCode_Type",
				       py->file[0].path);
			err = err == -ENOENT ? -ENOTSUP : err;
			goto out;
		}
		py->nr_files = 2;
	}
	py->runtime = python__symbol(py, "_PyRuntime");
out:
	free(list);
	return err;
}

/* Offsets in threads are known only for the machine that memtrace-bpf is built for. */
static int check_machine(const struct python *py, const char **why)
{
	uint16_t machine = elf__machine(py->file[0].elf);

	if (machine == ARCH_MACHINE)
		return 0;
	return python__refuse(why, -ENOTSUP,
			      "Python for another machine (ELF machine %u); known: " ARCH_NAME,
			      machine);
}

/* Finds the interpreter's files, its version and layout. 0 or -errno with *why. */
static int open_interpreter(struct python *py, const struct maps *maps, const char **why)
{
	int err = find_files(py, maps, why) ?: check_machine(py, why);

	if (err)
		return err;
	return identify_version(py, why) ?: python__cross_check(py, why);
}

struct python *python__open(const struct proc *proc, const struct maps *maps, const char **why)
{
	struct python *py = calloc(1, sizeof(*py));
	const char *text = "out of memory";
	int err = -ENOMEM;

	if (py) {
		py->proc = proc;
		py->micro = -1;
		err = open_interpreter(py, maps, &text);
	}
	if (!err)
		return py;
	python__free(py);
	if (why)
		*why = text;
	errno = -err;
	return NULL;
}

struct python *python__forked(const struct python *parent, const struct proc *proc)
{
	struct python *py = malloc(sizeof(*py));

	if (!py)
		return NULL;
	*py = *parent;
	py->proc = proc;
	for (size_t i = 0; i < py->nr_files; i++) {
		py->file[i].elf = elf__share(py->file[i].elf);
		py->file[i].path = strdup(parent->file[i].path);
		if (!py->file[i].path) {
			/* python__free() must not free the parent's file. */
			py->nr_files = i + 1;
			memset(&py->file[i + 1], 0, (1 - i) * sizeof(py->file[0]));
			python__free(py);
			return NULL;
		}
	}
	return py;
}

void python__free(struct python *py)
{
	if (!py)
		return;
	for (size_t i = 0; i < 2; i++) {
		elf__free(py->file[i].elf);
		free(py->file[i].path);
	}
	free(py);
}

int python__stdlib(const struct python *py, char *buf, size_t size)
{
	char path[PYOBJ_MAX_STRING];
	uint64_t module, file;
	char *slash;

	if (pyobj__module(py, "os", &module) || pyobj__module_attr(py, module, "__file__", &file) ||
	    pyobj__str(py, file, path, sizeof(path)))
		return -ENOENT;
	slash = strrchr(path, '/');
	if (!slash || slash == path || path[0] != '/')
		return -ENOENT;
	*slash = '\0';
	if ((size_t)(slash - path) >= size)
		return -ENAMETOOLONG;
	memcpy(buf, path, (size_t)(slash - path) + 1);
	return 0;
}
