/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native_stacks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "inspect/native/native.h"
#include "inspect/native/wire.h"
#include "inspect/proc.h"
#include "record/dict.h"
#include "record/stream.h"

#define SOCKET 3		    /* descriptor of the socket in the helper */
#define ANSWER_WITHIN 3000000000ULL /* ns; the first stack in a large file takes longest */
#define LOOK_EVERY 20000000ULL	    /* ns between two readings of the process's map, at least */
#define KILLED_MAX 5		    /* killed helpers after which none is started for a while */
#define PAUSE 60000000000ULL	    /* ns of that pause */
#define FILES_MAX 1024		    /* descriptors of the helper */
#define PINS 32			    /* files that stay open: the program, and the first libraries */

/* A mapped file with code. */
struct module {
	struct map first; /* lowest mapping of the file; its path is owned by `maps` */
	uint64_t start, end;
	int pin; /* O_PATH descriptor, for when the process has ended; negative: none */
};

struct native {
	const struct proc *proc;
	struct maps maps;
	struct module *module;
	size_t n, cap;
	uint64_t pages, looked; /* proc__pages() and time when the map was read */
	bool sent;		/* the helper has the current modules */
	struct subprocess helper;
	int fd;		   /* socket to the helper; -1: no helper */
	unsigned killed;   /* helpers that were killed since the last pause */
	uint64_t retry_at; /* time before which no helper is started */
	struct wire_frames answer;
	struct native_stats stats;
};

/* ---- mapped files ---- */

/* Lists the files that are mapped with code, each from its beginning on. 0 or -ENOMEM. */
static int find_modules(struct native *native)
{
	struct module *module = NULL; /* the last one in the list */
	bool code = false;	      /* it has code */

	for (size_t i = 0; i < native->maps.n; i++) {
		const struct map *map = &native->maps.v[i];

		if (!map->inode)
			continue;
		if (!module || !map__same_file(&module->first, map) || !map->offset) {
			if (module && !code) /* drop it: it is no module */
				native->n--;
			if (native->n == WIRE_MODULES_MAX)
				return 0;
			if (array__grow(&native->module, &native->cap, native->n + 1,
					sizeof(*native->module)))
				return -ENOMEM;
			module = &native->module[native->n++];
			*module = (struct module){ .first = *map, .start = map->start, .pin = -1 };
			code = false;
		}
		module->end = map->end;
		code = code || map->x;
	}
	if (module && !code)
		native->n--;
	return 0;
}

/* True if the same file is mapped at the same address. */
static bool is_same(const struct module *a, const struct module *b)
{
	return a->start == b->start && map__same_file(&a->first, &b->first);
}

/* Moves the pin of a file that was mapped there before. Returns false if it has none. */
static bool take_pin(struct module *module, struct module *before, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (before[i].pin < 0 || !is_same(module, &before[i]))
			continue;
		module->pin = before[i].pin;
		before[i].pin = -1;
		return true;
	}
	return false;
}

/* Keeps the module's file open, so that it stays readable after the process has ended. */
static void pin_file(const struct native *native, struct module *module)
{
	struct stat st;

	module->pin = proc__pin_map(native->proc, &module->first);
	/* The process may have mapped another file there since. */
	if (module->pin < 0 || (!fstat(module->pin, &st) && st.st_ino == module->first.inode))
		return;
	close(module->pin);
	module->pin = -1;
}

static void free_modules(struct module *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].pin >= 0)
			close(v[i].pin);
	free(v);
}

/* Lists the modules again. The first ones keep their files open: stacks may be read after the
 * process has ended, of which /proc shows no files. 0 or -ENOMEM. */
static int list_modules(struct native *native)
{
	struct module *before = native->module;
	size_t n_before = native->n;
	int err;

	native->module = NULL;
	native->n = native->cap = 0;
	err = find_modules(native);
	for (size_t i = 0; i < native->n && i < PINS; i++)
		if (!take_pin(&native->module[i], before, n_before))
			pin_file(native, &native->module[i]);
	free_modules(before, n_before);
	return err;
}

/* Reads the process's mappings and lists its modules. pages: of the mappings, to notice changes. */
static int read_maps(struct native *native, uint64_t pages)
{
	struct maps maps;
	int err = proc__maps(native->proc, &maps);

	if (!err && !maps.n) {
		maps__free(&maps);
		err = -ESRCH;
	}
	if (err)
		return err; /* keep what is known of a process that ended */
	maps__free(&native->maps);
	native->maps = maps;
	native->pages = pages;
	native->looked = clock__monotonic();
	native->sent = false;
	return list_modules(native);
}

/* Reads the map again if it has changed, so that the files of a process that ends soon are known.
 * Costs little if it has not. */
static void refresh_maps(struct native *native)
{
	uint64_t pages;

	if (proc__pages(native->proc, &pages) || pages == native->pages ||
	    clock__monotonic() - native->looked < LOOK_EVERY)
		return;
	read_maps(native, pages);
}

struct native *native__new(const struct proc *proc)
{
	struct native *native = calloc(1, sizeof(*native));
	int err;

	if (!native)
		return NULL;
	native->proc = proc;
	native->fd = -1;
	err = read_maps(native, 0);
	if (!err || err == -ESRCH)
		return native;
	native__free(native);
	errno = -err;
	return NULL;
}

static void end_helper(struct native *native)
{
	if (native->fd >= 0)
		close(native->fd);
	native->fd = -1;
	subprocess__kill(&native->helper);
}

void native__free(struct native *native)
{
	if (!native)
		return;
	end_helper(native);
	maps__free(&native->maps);
	free_modules(native->module, native->n);
	free(native);
}

/* ---- the helper ---- */

static int run_helper(void *ctx)
{
	(void)ctx;
	return helper__run(SOCKET);
}

/* Starts the helper unless it runs. -EAGAIN: not before native->retry_at; or another -errno. */
static int start_helper(struct native *native)
{
	struct subprocess_limit limit = { RLIMIT_NOFILE, FILES_MAX };
	struct subprocess_fd fd = { .to = SOCKET };
	struct subprocess_opts opts = { .main = run_helper,
					.fds = &fd,
					.n_fds = 1,
					.group = SUBPROCESS_OWN_SESSION,
					.death_signal = SIGKILL,
					.limits = &limit,
					.n_limits = 1 };
	const struct timeval within = { .tv_sec = 1 };
	int pair[2], err;

	if (native->fd >= 0)
		return 0;
	if (clock__monotonic() < native->retry_at)
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	fd.from = pair[1];
	err = subprocess__start(&opts, &native->helper);
	close(pair[1]);
	if (err) {
		close(pair[0]);
		return err;
	}
	/* sendmsg() must not block forever on a helper that does not read. */
	setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &within, sizeof(within));
	native->fd = pair[0];
	native->sent = false;
	return 0;
}

/* Kills the helper after err, an error in exchanging messages. Returns err, or -EPERM if the helper
 * exited with HELPER_UNUSABLE: then none is started again. */
static int give_up(struct native *native, int err)
{
	int status = 0;

	if (subprocess__wait(&native->helper, err == -EPROTO ? 100 : 0, &status) &&
	    WIFEXITED(status) && WEXITSTATUS(status) == HELPER_UNUSABLE)
		err = -EPERM;
	end_helper(native);
	native->stats.killed++;
	if (err == -EPERM) {
		native->retry_at = UINT64_MAX;
	} else if (++native->killed >= KILLED_MAX) {
		native->retry_at = clock__monotonic() + PAUSE;
		native->killed = 0;
	}
	return err;
}

/* Sends the modules to the helper, unless it has them. 0 or -errno. */
static int send_modules(struct native *native)
{
	struct wire_hdr header = { WIRE_MODULES, (uint32_t)native->n };
	struct wire_module *modules;
	struct iovec parts[2] = { { &header, sizeof(header) }, { 0 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	int err = 0;

	if (native->sent)
		return 0;
	modules = calloc(native->n + 1, sizeof(*modules));
	if (!modules)
		return -ENOMEM;
	for (size_t i = 0; i < native->n; i++)
		modules[i] = (struct wire_module){ native->module[i].start, native->module[i].end };
	parts[1] = (struct iovec){ modules, native->n * sizeof(*modules) };
	if (sendmsg(native->fd, &message, MSG_NOSIGNAL) < 0)
		err = -EPROTO;
	free(modules);
	native->sent = !err;
	return err;
}

/* Answers a request for a file with its descriptor; fd < 0: no such file. Takes ownership of fd. 0
 * or -EPROTO. */
static int send_file(const struct native *native, int fd)
{
	struct wire_hdr header = { WIRE_FILE, 0 };
	union {
		struct cmsghdr h;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { &header, sizeof(header) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int err;

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fd)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.h), &fd, sizeof(fd));
	}
	err = sendmsg(native->fd, &message, MSG_NOSIGNAL) < 0 ? -EPROTO : 0;
	if (fd >= 0)
		close(fd);
	return err;
}

/* ---- files with debug information ---- */

#define DEBUG_FOLDER "/usr/lib/debug"

static bool is_file_name(const char *s)
{
	return *s && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Writes the path of the candidate with the number need->h.n, in gdb's order: 0 and 1 by build ID,
 * 2 to 4 by the name in .gnu_debuglink. False: there is no candidate with this number. */
static bool debug_path(const struct module *module, const struct wire_need *need, char *buf,
		       size_t size)
{
	const char *path = module->first.path, *slash = strrchr(path, '/');
	char hex[2 * WIRE_BUILD_ID_MAX + 1] = "";
	int dir = slash ? (int)(slash - path) : 0, written = -1;
	uint32_t candidate = need->h.n;

	for (uint32_t i = 0; i < need->build_id_len && i < WIRE_BUILD_ID_MAX; i++)
		snprintf(hex + 2 * i, 3, "%02x", need->build_id[i]);
	if (candidate < 2 && hex[0] && hex[2]) {
		written = snprintf(buf, size, DEBUG_FOLDER "/.build-id/%.2s/%s.debug", hex,
				   hex + 2);
	} else if (slash && is_file_name(need->name)) {
		if (candidate == 2)
			written = snprintf(buf, size, "%.*s/%s", dir, path, need->name);
		else if (candidate == 3)
			written = snprintf(buf, size, "%.*s/.debug/%s", dir, path, need->name);
		else if (candidate == 4)
			written = snprintf(buf, size, DEBUG_FOLDER "%.*s/%s", dir, path,
					   need->name);
	}
	return written > 0 && (size_t)written < size;
}

/* Opens a module's file, from its pin if the process has ended. Returns a descriptor or a negative
 * error. */
static int open_module(const struct native *native, const struct module *module)
{
	int fd = proc__open_map(native->proc, &module->first);
	char name[32];

	if (fd >= 0 || module->pin < 0)
		return fd;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", module->pin);
	return io__open_regular(AT_FDCWD, name, LINKS_FOLLOW, NULL);
}

/* Opens the file that the helper requests. Returns a descriptor or a negative error. */
static int open_needed(struct native *native, struct wire_need *need)
{
	char path[4096];

	need->name[sizeof(need->name) - 1] = '\0';
	if (need->module >= native->n)
		return -EINVAL;
	if (need->h.kind == WIRE_NEED_ELF)
		return open_module(native, &native->module[need->module]);
	if (!debug_path(&native->module[need->module], need, path, sizeof(path)))
		return -ENOENT;
	/* Candidate 1 is a file of this machine, the others are files of the process's container. */
	return need->h.n == 1 ? io__open_regular(AT_FDCWD, path, LINKS_FOLLOW, NULL)
			      : proc__open_file(native->proc, path);
}

/* ---- answers of the helper ---- */

/* Returns the offset of the text in an answer of len bytes. 0: the answer is not valid. modules:
 * number of modules. */
static size_t find_text(const struct wire_frames *answer, size_t len, size_t modules)
{
	size_t at = offsetof(struct wire_frames, v);

	if (len < at || answer->h.n > NATIVE_FRAMES_MAX || !answer->text ||
	    answer->text > WIRE_TEXT_MAX)
		return 0;
	at += answer->h.n * sizeof(answer->v[0]);
	if (len != at + answer->text || ((const char *)answer)[len - 1])
		return 0;
	for (uint32_t i = 0; i < answer->h.n; i++) {
		const struct wire_frame *frame = &answer->v[i];

		if (frame->function >= answer->text || frame->file >= answer->text ||
		    frame->build_id >= answer->text ||
		    (frame->module != WIRE_NO_MODULE && frame->module >= modules))
			return 0;
	}
	return at;
}

bool wire__read_answer(const struct wire_frames *answer, size_t len,
		       const struct answer_modules *modules, struct native_frames *ret)
{
	size_t at = find_text(answer, len, modules->n);
	const char *text = (const char *)answer + at;

	if (!at)
		return false;
	ret->n = answer->h.n;
	ret->whole = answer->whole != 0;
	for (size_t i = 0; i < ret->n; i++) {
		const struct wire_frame *frame = &answer->v[i];

		ret->v[i] = (struct native_frame){
			.module = frame->module == WIRE_NO_MODULE
					  ? ""
					  : modules->path(modules->ctx, frame->module),
			.build_id = text + frame->build_id,
			.at = frame->at,
			.function = text + frame->function,
			.offset = frame->offset,
			.file = text + frame->file,
			.line = frame->line,
			.inlined = frame->inlined != 0,
		};
	}
	return true;
}

/* ---- unwinding of a stack ---- */

/* Waits until the helper has sent something, until `until` at most. False: it has not. */
static bool await_helper(const struct native *native, uint64_t until)
{
	struct pollfd readable = { .fd = native->fd, .events = POLLIN };

	for (;;) {
		uint64_t now = clock__monotonic();
		int ready;

		if (now >= until)
			return false;
		ready = poll(&readable, 1, (int)((until - now) / 1000000 + 1));
		if (ready >= 0 || errno != EINTR)
			return ready != 0; /* after an error recv() says what is wrong */
	}
}

/* Receives the next message of the helper into native->answer. until: CLOCK_MONOTONIC, ns. Returns
 * its length or -errno. */
static ssize_t receive_message(struct native *native, uint64_t until)
{
	ssize_t len;

	if (!await_helper(native, until))
		return -ETIMEDOUT;
	len = recv(native->fd, &native->answer, sizeof(native->answer), MSG_DONTWAIT);
	return len < (ssize_t)sizeof(struct wire_hdr) ? -EPROTO : len;
}

static const char *module_path(const void *ctx, uint32_t module)
{
	return ((const struct native *)ctx)->module[module].first.path;
}

/* Sends a stack to the helper, opens the files that it requests, reads its answer. 0 or -errno. */
static int ask_helper(struct native *native, const struct native_regs *regs, const void *stack,
		      size_t size, struct native_frames *ret)
{
	struct wire_unwind question = { .h = { WIRE_UNWIND, 0 }, .regs = *regs };
	struct iovec parts[] = { { &question, sizeof(question) }, { (void *)stack, size } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	uint64_t until = clock__monotonic() + ANSWER_WITHIN;
	const struct answer_modules modules = { module_path, native, native->n };
	int err = send_modules(native);
	ssize_t len;

	if (!err && sendmsg(native->fd, &message, MSG_NOSIGNAL) < 0)
		err = -EPROTO;
	while (!err) {
		len = receive_message(native, until);
		if (len < 0)
			return (int)len;
		if (native->answer.h.kind == WIRE_FRAMES)
			return wire__read_answer(&native->answer, (size_t)len, &modules, ret)
				       ? 0
				       : -EPROTO;
		if ((native->answer.h.kind != WIRE_NEED_ELF &&
		     native->answer.h.kind != WIRE_NEED_DEBUG) ||
		    len != sizeof(struct wire_need))
			return -EPROTO;
		err = send_file(native, open_needed(native, (struct wire_need *)&native->answer));
	}
	return err;
}

int native__unwind(struct native *native, const struct native_regs *regs, const void *stack,
		   size_t size, struct native_frames *ret)
{
	uint64_t began = clock__monotonic();
	int err;

	ret->n = 0;
	ret->whole = false;
	native->stats.stacks++;
	refresh_maps(native);
	err = start_helper(native);
	if (!err) {
		err = ask_helper(native, regs, stack,
				 size < NATIVE_STACK_MAX ? size : NATIVE_STACK_MAX, ret);
		if (err)
			err = give_up(native, err);
	}
	native->stats.failed += err != 0;
	native->stats.ns += clock__monotonic() - began;
	return err;
}

struct native_stats native__stats(const struct native *native)
{
	return native->stats;
}

/* ---- stacks that wait for their events ---- */

#define KEPT_MAX 256   /* threads whose stack waits for its event */
#define BUILDS_MAX 512 /* files whose build ID becomes a fact */

_Static_assert(NATIVE_FAR_MAX == MT_NATIVE_FAR, "frames outside of the copied stack");

struct native_stacks {
	struct native *native;
	struct dict *dict;
	struct facts *facts;
	struct map64 *kept;   /* tid -> struct mt_rec_native */
	struct map64 *builds; /* hashes of the build IDs that are facts */
	uint64_t forgotten;   /* stacks that were dropped because too many waited */
};

struct native_stacks *native_stacks__new(const struct proc *proc, struct dict *dict,
					 struct facts *facts)
{
	struct native_stacks *stacks = calloc(1, sizeof(*stacks));

	if (!stacks)
		return NULL;
	stacks->dict = dict;
	stacks->facts = facts;
	stacks->kept = map64__new();
	stacks->builds = map64__new();
	stacks->native = stacks->kept && stacks->builds ? native__new(proc) : NULL;
	if (stacks->native)
		return stacks;
	native_stacks__free(stacks);
	errno = errno ?: ENOMEM;
	return NULL;
}

static void forget_all(struct native_stacks *stacks)
{
	uint64_t tid, kept;
	size_t pos = 0;

	while (map64__next(stacks->kept, &pos, &tid, &kept))
		free((void *)(uintptr_t)kept);
	map64__clear(stacks->kept);
}

void native_stacks__free(struct native_stacks *stacks)
{
	if (!stacks)
		return;
	if (stacks->kept)
		forget_all(stacks);
	map64__free(stacks->kept);
	map64__free(stacks->builds);
	native__free(stacks->native);
	free(stacks);
}

void native_stacks__refresh(struct native_stacks *stacks)
{
	refresh_maps(stacks->native);
}

int native_stacks__record(struct native_stacks *stacks, const struct mt_rec_native *record,
			  size_t len)
{
	struct mt_rec_native *copy;
	uint64_t old;
	bool replaced;

	if (record->size > MT_NATIVE_STACK || record->n_far > MT_NATIVE_FAR ||
	    len < sizeof(*record) + record->size)
		return -EBADMSG;
	if (map64__count(stacks->kept) >= KEPT_MAX) {
		stacks->forgotten += map64__count(stacks->kept);
		forget_all(stacks);
	}
	copy = malloc(sizeof(*record) + record->size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, record, sizeof(*record) + record->size);
	if (map64__swap(stacks->kept, record->h.tid, (uintptr_t)copy, &replaced, &old)) {
		free(copy);
		return -ENOMEM;
	}
	if (replaced)
		free((void *)(uintptr_t)old);
	return 0;
}

/* Returns the copied stack of a thread's event, which the caller frees. NULL: there is none. Frees
 * a stack with another time, which belongs to an event that never came. */
static struct mt_rec_native *take_copy(struct native_stacks *stacks, uint32_t tid, uint64_t time)
{
	struct mt_rec_native *record;
	uint64_t kept;

	if (!map64__del(stacks->kept, tid, &kept))
		return NULL;
	record = (struct mt_rec_native *)(uintptr_t)kept;
	if (record->h.time == time)
		return record;
	free(record);
	return NULL;
}

void native_stacks__drop(struct native_stacks *stacks, uint32_t tid)
{
	free(take_copy(stacks, tid, 0));
}

/* Converts a number that the dictionary returned, with errno. 0: the dictionary is full.
 * UINT32_MAX: out of memory. */
static uint32_t dict_number(uint32_t n)
{
	return n == UINT32_MAX && errno == ENOSPC ? 0 : n;
}

static uint32_t add_string(struct native_stacks *stacks, const char *text)
{
	return *text ? dict_number(dict__string(stacks->dict, text, strlen(text))) : 0;
}

/* Sets the fact that has the build ID of a frame's file, so that the frames can be named on another
 * machine. 0 or -ENOMEM. */
static int note_build(struct native_stacks *stacks, const struct native_frame *frame)
{
	uint64_t build = hash__bytes(hash__seed(), frame->build_id, strlen(frame->build_id)), v;
	char key[64];

	if (!*frame->build_id || map64__get(stacks->builds, build, &v) ||
	    map64__count(stacks->builds) >= BUILDS_MAX)
		return 0;
	snprintf(key, sizeof(key), "native.build.%zu", map64__count(stacks->builds) + 1);
	if (facts__setf(stacks->facts, key, "%s %s", frame->build_id, frame->module) == -ENOMEM)
		return -ENOMEM;
	return map64__set(stacks->builds, build, 1);
}

/* Writes a frame's source file. A relative path gets the name of the library before it:
 * "libc.so.6/malloc/malloc.c". */
static void write_source_path(const struct native_frame *frame, char *buf, size_t size)
{
	const char *file = frame->file;

	while (text__starts(file, "./") || text__starts(file, "../"))
		file = strchr(file, '/') + 1;
	if (*file == '/')
		snprintf(buf, size, "%s", file);
	else
		snprintf(buf, size, "%s%s%s", map__base_name(frame->module), *file ? "/" : "",
			 file);
}

/* Returns the dictionary's number of a frame's location. 0: the dictionary is full. UINT32_MAX: out
 * of memory. */
static uint32_t add_location(struct native_stacks *stacks, const struct native_frame *frame)
{
	struct dict_loc loc = { .line = frame->line & INT32_MAX };
	char function[1200], file[DICT_MAX_STRING];

	if (*frame->function && (frame->line || frame->inlined))
		snprintf(function, sizeof(function), "%s", frame->function);
	else
		snprintf(function, sizeof(function), "%s+0x%" PRIx64, frame->function,
			 *frame->function ? frame->offset : frame->at);
	if (note_build(stacks, frame))
		return UINT32_MAX;
	write_source_path(frame, file, sizeof(file));
	loc.file = add_string(stacks, file);
	loc.func = add_string(stacks, function);
	if (loc.file == UINT32_MAX || loc.func == UINT32_MAX)
		return UINT32_MAX;
	return dict_number(dict__native_loc(stacks->dict, loc));
}

/* Counts the frames before the interpreter's, from the innermost on: the code that Python called. */
static size_t count_outside_python(const struct native_frames *frames)
{
	const char *interpreter = NULL;
	size_t i;

	for (i = 0; i < frames->n && !interpreter; i++)
		if (!strcmp(frames->v[i].function, "_PyEval_EvalFrameDefault"))
			interpreter = frames->v[i].module;
	for (i = 0; i < frames->n && interpreter; i++)
		if (!strcmp(frames->v[i].module, interpreter))
			return i;
	return frames->n;
}

/* True if a frame is code of PyTorch's allocator, which all stacks of its allocations have. */
static bool is_of_allocator(const struct native_frame *frame)
{
	return !strncmp(map__base_name(frame->module), "libc10", strlen("libc10"));
}

/* True if a frame is PyTorch's glue between an operator and its kernel, whose names have a thousand
 * characters. */
static bool is_dispatch(const struct native_frame *frame)
{
	static const char glue[] = "c10::impl::wrap_kernel_functor_";

	return !strncmp(frame->function, glue, sizeof(glue) - 1);
}

/* Adds the stack of native frames and the Python frames of *stack to the dictionary, and sets
 * *stack and *walk to the result. in_call: as in struct mt_rec_native. 0 or -ENOMEM. */
static int join_stacks(struct native_stacks *stacks, const struct native_frames *frames,
		       bool in_call, uint32_t *stack, uint8_t *walk)
{
	struct dict_stack python = dict__get_stack(stacks->dict, *stack);
	struct dict_frame out[NATIVE_FRAMES_MAX + MT_MAX_ENTRIES];
	size_t end = python.n ? count_outside_python(frames) : frames->n, i = 0, n = 0;

	/* The event itself names the called function, so leave out its frame. */
	while (!in_call && i < end && frames->v[i].at == frames->v[0].at &&
	       !strcmp(frames->v[i].module, frames->v[0].module))
		i++;
	while (i < end && is_of_allocator(&frames->v[i]))
		i++;
	if (i == end)
		return 0;
	/* A return probe hides the caller: its page is in no file. The caller is then unknown. */
	while (!frames->whole && end > i + 1 && !*frames->v[end - 1].module &&
	       !*frames->v[end - 1].function)
		end--;
	for (; i < end; i++) {
		if (is_dispatch(&frames->v[i]))
			continue;
		out[n].module = 0;
		out[n].loc = add_location(stacks, &frames->v[i]);
		if (out[n++].loc == UINT32_MAX)
			return -ENOMEM;
	}
	for (i = 0; i < python.n && i < MT_MAX_ENTRIES; i++)
		out[n++] = python.frames[i];
	if (!python.n)
		*walk = frames->whole ? MT_WALK_OK : MT_WALK_TRUNCATED;
	*stack = dict_number(dict__stack(stacks->dict, out, (uint32_t)n, *walk));
	return *stack == UINT32_MAX ? -ENOMEM : 0;
}

int native_stacks__join(struct native_stacks *stacks, uint32_t tid, uint64_t time, uint32_t *stack,
			uint8_t *walk)
{
	struct mt_rec_native *record = take_copy(stacks, tid, time);
	struct native_frames frames;
	struct native_regs regs;
	bool in_call;
	int err;

	if (!record)
		return 0;
	in_call = record->in_call;
	regs = (struct native_regs){ .ip = record->ip,
				     .sp = record->sp,
				     .fp = record->fp,
				     .lr = record->lr,
				     .n_far = record->n_far };
	memcpy(regs.far, record->far, record->n_far * sizeof(*record->far));
	err = native__unwind(stacks->native, &regs, record + 1, record->size, &frames);
	free(record);
	return err ?: join_stacks(stacks, &frames, in_call, stack, walk);
}

/* Sets a counter as a fact unless it is 0. */
static void set_counter(const struct native_stacks *stacks, const char *what, uint64_t n)
{
	char key[64];

	snprintf(key, sizeof(key), "counter.native.%s", what);
	if (n)
		facts__setf(stacks->facts, key, "%" PRIu64, n);
}

void native_stacks__set_facts(const struct native_stacks *stacks,
			      const uint64_t counters[MT_CNT_NR])
{
	struct native_stats stats = native__stats(stacks->native);

	set_counter(stacks, "stacks", stats.stacks);
	set_counter(stacks, "failed", stats.failed);
	set_counter(stacks, "helpers_killed", stats.killed);
	set_counter(stacks, "forgotten", stacks->forgotten);
	set_counter(stacks, "not_copied", counters[MT_CNT_NATIVE_OVER]);
}
