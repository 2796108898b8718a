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

/* Lists the files that are mapped with code, each from its beginning on. */
static int find_modules(struct native *n)
{
	struct module *m = NULL;
	bool code = false;

	for (size_t i = 0; i < n->maps.n; i++) {
		const struct map *map = &n->maps.v[i];

		if (!map->inode)
			continue;
		if (!m || !map__same_file(&m->first, map) || !map->offset) {
			/* The last file had no code, so it is no module. */
			n->n -= m && !code;
			if (n->n == WIRE_MODULES_MAX)
				return 0;
			if (array__grow(&n->module, &n->cap, n->n + 1, sizeof(*n->module)))
				return -ENOMEM;
			m = &n->module[n->n++];
			*m = (struct module){ .first = *map, .start = map->start, .pin = -1 };
			code = false;
		}
		m->end = map->end;
		code = code || map->x;
	}
	n->n -= m && !code;
	return 0;
}

static bool is_same(const struct module *a, const struct module *b)
{
	return a->start == b->start && map__same_file(&a->first, &b->first);
}

/* Moves the pin of a file that was mapped there before. Returns false if it has none. */
static bool take_pin(struct module *m, struct module *before, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (before[i].pin < 0 || !is_same(m, &before[i]))
			continue;
		m->pin = before[i].pin;
		before[i].pin = -1;
		return true;
	}
	return false;
}

static void pin_file(const struct native *n, struct module *m)
{
	struct stat st;

	m->pin = proc__pin_map(n->proc, &m->first);
	/* The process may have mapped another file there since. */
	if (m->pin < 0 || (!fstat(m->pin, &st) && st.st_ino == m->first.inode))
		return;
	close(m->pin);
	m->pin = -1;
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
static int list_modules(struct native *n)
{
	struct module *before = n->module;
	size_t n_before = n->n;
	int err;

	n->module = NULL;
	n->n = n->cap = 0;
	err = find_modules(n);
	for (size_t i = 0; i < n->n && i < PINS; i++)
		if (!take_pin(&n->module[i], before, n_before))
			pin_file(n, &n->module[i]);
	free_modules(before, n_before);
	return err;
}

static int read_maps(struct native *n, uint64_t pages)
{
	struct maps maps;
	int err = proc__maps(n->proc, &maps);

	if (!err && !maps.n) {
		maps__free(&maps);
		err = -ESRCH;
	}
	if (err)
		return err; /* keep what is known of a process that ended */
	maps__free(&n->maps);
	n->maps = maps;
	n->pages = pages;
	n->looked = clock__monotonic();
	n->sent = false;
	return list_modules(n);
}

/* Reads the map again if it has changed, so that the files of a process that ends soon are known.
 * Costs little if it has not. */
static void refresh_maps(struct native *n)
{
	uint64_t pages;

	if (proc__pages(n->proc, &pages) || pages == n->pages ||
	    clock__monotonic() - n->looked < LOOK_EVERY)
		return;
	read_maps(n, pages);
}

struct native *native__new(const struct proc *p)
{
	struct native *n = calloc(1, sizeof(*n));
	int err;

	if (!n)
		return NULL;
	n->proc = p;
	n->fd = -1;
	err = read_maps(n, 0);
	if (!err || err == -ESRCH)
		return n;
	native__free(n);
	errno = -err;
	return NULL;
}

static void end_helper(struct native *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
	subprocess__kill(&n->helper);
}

void native__free(struct native *n)
{
	if (!n)
		return;
	end_helper(n);
	maps__free(&n->maps);
	free_modules(n->module, n->n);
	free(n);
}

/* ---- the helper ---- */

static int run_helper(void *ctx)
{
	(void)ctx;
	return helper__run(SOCKET);
}

/* Starts the helper unless it runs. -EAGAIN: not before n->retry_at; or another -errno. */
static int start_helper(struct native *n)
{
	struct subprocess_limit limit = { RLIMIT_NOFILE, FILES_MAX };
	struct subprocess_fd fd = { .to = SOCKET };
	struct subprocess_opts o = { .main = run_helper,
				     .fds = &fd,
				     .n_fds = 1,
				     .group = SUBPROCESS_OWN_SESSION,
				     .death_signal = SIGKILL,
				     .limits = &limit,
				     .n_limits = 1 };
	const struct timeval within = { .tv_sec = 1 };
	int pair[2], err;

	if (n->fd >= 0)
		return 0;
	if (clock__monotonic() < n->retry_at)
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	fd.from = pair[1];
	err = subprocess__start(&o, &n->helper);
	close(pair[1]);
	if (err) {
		close(pair[0]);
		return err;
	}
	/* sendmsg() must not block forever on a helper that does not read. */
	setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &within, sizeof(within));
	n->fd = pair[0];
	n->sent = false;
	return 0;
}

/* Kills the helper after err, an error in exchanging messages. Returns err, or -EPERM if the helper
 * exited with HELPER_UNUSABLE: then none is started again. */
static int give_up(struct native *n, int err)
{
	int status = 0;

	if (subprocess__wait(&n->helper, err == -EPROTO ? 100 : 0, &status) && WIFEXITED(status) &&
	    WEXITSTATUS(status) == HELPER_UNUSABLE)
		err = -EPERM;
	end_helper(n);
	n->stats.killed++;
	if (err == -EPERM) {
		n->retry_at = UINT64_MAX;
	} else if (++n->killed >= KILLED_MAX) {
		n->retry_at = clock__monotonic() + PAUSE;
		n->killed = 0;
	}
	return err;
}

static int send_modules(struct native *n)
{
	struct wire_hdr h = { WIRE_MODULES, (uint32_t)n->n };
	struct wire_module *v;
	struct iovec parts[2] = { { &h, sizeof(h) }, { 0 } };
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };
	int err = 0;

	if (n->sent)
		return 0;
	v = calloc(n->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n->n; i++)
		v[i] = (struct wire_module){ n->module[i].start, n->module[i].end };
	parts[1] = (struct iovec){ v, n->n * sizeof(*v) };
	if (sendmsg(n->fd, &m, MSG_NOSIGNAL) < 0)
		err = -EPROTO;
	free(v);
	n->sent = !err;
	return err;
}

/* Answers a request for a file with its descriptor; fd < 0: no such file. Takes ownership of fd. 0
 * or -EPROTO. */
static int send_file(const struct native *n, int fd)
{
	struct wire_hdr h = { WIRE_FILE, 0 };
	union {
		struct cmsghdr h;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { &h, sizeof(h) };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	int err;

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		control.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fd)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.h), &fd, sizeof(fd));
	}
	err = sendmsg(n->fd, &m, MSG_NOSIGNAL) < 0 ? -EPROTO : 0;
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
static bool debug_path(const struct module *m, const struct wire_need *need, char *buf, size_t size)
{
	const char *path = m->first.path, *slash = strrchr(path, '/');
	char hex[2 * WIRE_BUILD_ID_MAX + 1] = "";
	int dir = slash ? (int)(slash - path) : 0, n = -1;
	uint32_t candidate = need->h.n;

	for (uint32_t i = 0; i < need->build_id_len && i < WIRE_BUILD_ID_MAX; i++)
		snprintf(hex + 2 * i, 3, "%02x", need->build_id[i]);
	if (candidate < 2 && hex[0] && hex[2]) {
		n = snprintf(buf, size, DEBUG_FOLDER "/.build-id/%.2s/%s.debug", hex, hex + 2);
	} else if (slash && is_file_name(need->name)) {
		if (candidate == 2)
			n = snprintf(buf, size, "%.*s/%s", dir, path, need->name);
		else if (candidate == 3)
			n = snprintf(buf, size, "%.*s/.debug/%s", dir, path, need->name);
		else if (candidate == 4)
			n = snprintf(buf, size, DEBUG_FOLDER "%.*s/%s", dir, path, need->name);
	}
	return n > 0 && (size_t)n < size;
}

/* Opens a module's file, from its pin if the process has ended. Returns a descriptor or a negative
 * error. */
static int open_module(const struct native *n, const struct module *m)
{
	int fd = proc__open_map(n->proc, &m->first);
	char name[32];

	if (fd >= 0 || m->pin < 0)
		return fd;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", m->pin);
	return io__open_regular(AT_FDCWD, name, LINKS_FOLLOW, NULL);
}

/* Opens the file that the helper requests. Returns a descriptor or a negative error. */
static int open_needed(struct native *n, struct wire_need *need)
{
	char path[4096];

	need->name[sizeof(need->name) - 1] = '\0';
	if (need->module >= n->n)
		return -EINVAL;
	if (need->h.kind == WIRE_NEED_ELF)
		return open_module(n, &n->module[need->module]);
	if (!debug_path(&n->module[need->module], need, path, sizeof(path)))
		return -ENOENT;
	/* Candidate 1 is a file of this machine, the others are files of the process's container. */
	return need->h.n == 1 ? io__open_regular(AT_FDCWD, path, LINKS_FOLLOW, NULL)
			      : proc__open_file(n->proc, path);
}

/* ---- answers of the helper ---- */

/* Returns the offset of the text in an answer of len bytes. 0: the answer is not valid. modules:
 * number of modules. */
static size_t find_text(const struct wire_frames *a, size_t len, size_t modules)
{
	size_t at = offsetof(struct wire_frames, v);

	if (len < at || a->h.n > NATIVE_FRAMES_MAX || !a->text || a->text > WIRE_TEXT_MAX)
		return 0;
	at += a->h.n * sizeof(a->v[0]);
	if (len != at + a->text || ((const char *)a)[len - 1])
		return 0;
	for (uint32_t i = 0; i < a->h.n; i++) {
		const struct wire_frame *f = &a->v[i];

		if (f->function >= a->text || f->file >= a->text || f->build_id >= a->text ||
		    (f->module != WIRE_NO_MODULE && f->module >= modules))
			return 0;
	}
	return at;
}

bool wire__read_answer(const struct wire_frames *a, size_t len, const struct answer_modules *m,
		       struct native_frames *ret)
{
	size_t at = find_text(a, len, m->n);
	const char *text = (const char *)a + at;

	if (!at)
		return false;
	ret->n = a->h.n;
	ret->whole = a->whole != 0;
	for (size_t i = 0; i < ret->n; i++) {
		const struct wire_frame *f = &a->v[i];

		ret->v[i] = (struct native_frame){
			.module = f->module == WIRE_NO_MODULE ? "" : m->path(m->ctx, f->module),
			.build_id = text + f->build_id,
			.at = f->at,
			.function = text + f->function,
			.offset = f->offset,
			.file = text + f->file,
			.line = f->line,
			.inlined = f->inlined != 0,
		};
	}
	return true;
}

/* ---- unwinding of a stack ---- */

/* Waits for the next message of the helper, at most until `until`. Returns its length or -errno. */
static ssize_t receive_message(struct native *n, uint64_t until)
{
	struct pollfd p = { .fd = n->fd, .events = POLLIN };
	uint64_t now = clock__monotonic();
	ssize_t len;
	int ready;

	do
		ready = now < until ? poll(&p, 1, (int)((until - now) / 1000000 + 1)) : 0;
	while (ready < 0 && errno == EINTR && (now = clock__monotonic(), true));
	if (!ready)
		return -ETIMEDOUT;
	len = recv(n->fd, &n->answer, sizeof(n->answer), MSG_DONTWAIT);
	return len < (ssize_t)sizeof(struct wire_hdr) ? -EPROTO : len;
}

static const char *module_path(const void *ctx, uint32_t module)
{
	return ((const struct native *)ctx)->module[module].first.path;
}

/* Sends a stack to the helper, opens the files that it requests, reads its answer. 0 or -errno. */
static int ask_helper(struct native *n, const struct native_regs *r, const void *stack, size_t size,
		      struct native_frames *ret)
{
	struct wire_unwind q = { .h = { WIRE_UNWIND, 0 }, .regs = *r };
	struct iovec parts[] = { { &q, sizeof(q) }, { (void *)stack, size } };
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };
	uint64_t until = clock__monotonic() + ANSWER_WITHIN;
	const struct answer_modules modules = { module_path, n, n->n };
	int err = send_modules(n);
	ssize_t len;

	if (!err && sendmsg(n->fd, &m, MSG_NOSIGNAL) < 0)
		err = -EPROTO;
	while (!err) {
		len = receive_message(n, until);
		if (len < 0)
			return (int)len;
		if (n->answer.h.kind == WIRE_FRAMES)
			return wire__read_answer(&n->answer, (size_t)len, &modules, ret) ? 0
											 : -EPROTO;
		if ((n->answer.h.kind != WIRE_NEED_ELF && n->answer.h.kind != WIRE_NEED_DEBUG) ||
		    len != sizeof(struct wire_need))
			return -EPROTO;
		err = send_file(n, open_needed(n, (struct wire_need *)&n->answer));
	}
	return err;
}

int native__unwind(struct native *n, const struct native_regs *r, const void *stack, size_t size,
		   struct native_frames *ret)
{
	uint64_t began = clock__monotonic();
	int err;

	ret->n = 0;
	ret->whole = false;
	n->stats.stacks++;
	refresh_maps(n);
	err = start_helper(n);
	if (!err) {
		err = ask_helper(n, r, stack, size < NATIVE_STACK_MAX ? size : NATIVE_STACK_MAX,
				 ret);
		if (err)
			err = give_up(n, err);
	}
	n->stats.failed += err != 0;
	n->stats.ns += clock__monotonic() - began;
	return err;
}

struct native_stats native__stats(const struct native *n)
{
	return n->stats;
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

struct native_stacks *native_stacks__new(const struct proc *p, struct dict *d, struct facts *f)
{
	struct native_stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->dict = d;
	s->facts = f;
	s->kept = map64__new();
	s->builds = map64__new();
	s->native = s->kept && s->builds ? native__new(p) : NULL;
	if (s->native)
		return s;
	native_stacks__free(s);
	errno = errno ?: ENOMEM;
	return NULL;
}

static void forget_all(struct native_stacks *s)
{
	uint64_t tid, kept;
	size_t pos = 0;

	while (map64__next(s->kept, &pos, &tid, &kept))
		free((void *)(uintptr_t)kept);
	map64__clear(s->kept);
}

void native_stacks__free(struct native_stacks *s)
{
	if (!s)
		return;
	if (s->kept)
		forget_all(s);
	map64__free(s->kept);
	map64__free(s->builds);
	native__free(s->native);
	free(s);
}

void native_stacks__refresh(struct native_stacks *s)
{
	refresh_maps(s->native);
}

int native_stacks__record(struct native_stacks *s, const struct mt_rec_native *r, size_t len)
{
	struct mt_rec_native *copy;
	uint64_t old;
	bool replaced;

	if (r->size > MT_NATIVE_STACK || r->n_far > MT_NATIVE_FAR || len < sizeof(*r) + r->size)
		return -EBADMSG;
	if (map64__count(s->kept) >= KEPT_MAX) {
		s->forgotten += map64__count(s->kept);
		forget_all(s);
	}
	copy = malloc(sizeof(*r) + r->size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, r, sizeof(*r) + r->size);
	if (map64__swap(s->kept, r->h.tid, (uintptr_t)copy, &replaced, &old)) {
		free(copy);
		return -ENOMEM;
	}
	if (replaced)
		free((void *)(uintptr_t)old);
	return 0;
}

/* Returns the copied stack of a thread's event, which the caller frees. NULL: there is none. Frees
 * a stack with another time, which belongs to an event that never came. */
static struct mt_rec_native *take_copy(struct native_stacks *s, uint32_t tid, uint64_t time)
{
	struct mt_rec_native *r;
	uint64_t kept;

	if (!map64__del(s->kept, tid, &kept))
		return NULL;
	r = (struct mt_rec_native *)(uintptr_t)kept;
	if (r->h.time == time)
		return r;
	free(r);
	return NULL;
}

void native_stacks__drop(struct native_stacks *s, uint32_t tid)
{
	free(take_copy(s, tid, 0));
}

/* Converts a number that the dictionary returned, with errno. 0: the dictionary is full.
 * UINT32_MAX: out of memory. */
static uint32_t dict_number(uint32_t n)
{
	return n == UINT32_MAX && errno == ENOSPC ? 0 : n;
}

static uint32_t add_string(struct native_stacks *s, const char *text)
{
	return *text ? dict_number(dict__string(s->dict, text, strlen(text))) : 0;
}

/* Sets the fact that has the build ID of a frame's file, so that the frames can be named on another
 * machine. 0 or -ENOMEM. */
static int note_build(struct native_stacks *s, const struct native_frame *f)
{
	uint64_t build = hash__bytes(hash__seed(), f->build_id, strlen(f->build_id)), v;
	char key[64];

	if (!*f->build_id || map64__get(s->builds, build, &v) ||
	    map64__count(s->builds) >= BUILDS_MAX)
		return 0;
	snprintf(key, sizeof(key), "native.build.%zu", map64__count(s->builds) + 1);
	if (facts__setf(s->facts, key, "%s %s", f->build_id, f->module) == -ENOMEM)
		return -ENOMEM;
	return map64__set(s->builds, build, 1);
}

/* Writes a frame's source file. A relative path gets the name of the library before it:
 * "libc.so.6/malloc/malloc.c". */
static void write_source_path(const struct native_frame *f, char *buf, size_t size)
{
	const char *file = f->file;

	while (!strncmp(file, "./", 2) || !strncmp(file, "../", 3))
		file = strchr(file, '/') + 1;
	if (*file == '/')
		snprintf(buf, size, "%s", file);
	else
		snprintf(buf, size, "%s%s%s", map__base_name(f->module), *file ? "/" : "", file);
}

/* Returns the dictionary's number of a frame's location. 0: the dictionary is full. UINT32_MAX: out
 * of memory. */
static uint32_t add_location(struct native_stacks *s, const struct native_frame *f)
{
	struct dict_loc loc = { .line = f->line & INT32_MAX };
	char function[1200], file[DICT_MAX_STRING];

	if (*f->function && (f->line || f->inlined))
		snprintf(function, sizeof(function), "%s", f->function);
	else
		snprintf(function, sizeof(function), "%s+0x%" PRIx64, f->function,
			 *f->function ? f->offset : f->at);
	if (note_build(s, f))
		return UINT32_MAX;
	write_source_path(f, file, sizeof(file));
	loc.file = add_string(s, file);
	loc.func = add_string(s, function);
	if (loc.file == UINT32_MAX || loc.func == UINT32_MAX)
		return UINT32_MAX;
	return dict_number(dict__native_loc(s->dict, loc));
}

/* Counts the frames before the interpreter's, from the innermost on: the code that Python called. */
static size_t count_outside_python(const struct native_frames *f)
{
	const char *interpreter = NULL;
	size_t i;

	for (i = 0; i < f->n && !interpreter; i++)
		if (!strcmp(f->v[i].function, "_PyEval_EvalFrameDefault"))
			interpreter = f->v[i].module;
	for (i = 0; i < f->n && interpreter; i++)
		if (!strcmp(f->v[i].module, interpreter))
			return i;
	return f->n;
}

/* Whether a frame is code of PyTorch's allocator, which all stacks of its allocations have. */
static bool is_of_allocator(const struct native_frame *f)
{
	return !strncmp(map__base_name(f->module), "libc10", strlen("libc10"));
}

/* Whether a frame is PyTorch's glue between an operator and its kernel, whose names have a thousand
 * characters. */
static bool is_dispatch(const struct native_frame *f)
{
	static const char glue[] = "c10::impl::wrap_kernel_functor_";

	return !strncmp(f->function, glue, sizeof(glue) - 1);
}

/* Adds the stack of native frames f and the Python frames of *stack to the dictionary. in_call: as
 * in struct mt_rec_native. 0 or -ENOMEM. */
static int join_stacks(struct native_stacks *s, const struct native_frames *f, bool in_call,
		       uint32_t *stack, uint8_t *walk)
{
	struct dict_stack python = dict__get_stack(s->dict, *stack);
	struct dict_frame out[NATIVE_FRAMES_MAX + MT_MAX_ENTRIES];
	size_t end = python.n ? count_outside_python(f) : f->n, i = 0, n = 0;

	/* The event itself names the called function, so leave out its frame. */
	while (!in_call && i < end && f->v[i].at == f->v[0].at &&
	       !strcmp(f->v[i].module, f->v[0].module))
		i++;
	while (i < end && is_of_allocator(&f->v[i]))
		i++;
	if (i == end)
		return 0;
	/* A return probe hides the caller: its page is in no file. The caller is then unknown. */
	while (!f->whole && end > i + 1 && !*f->v[end - 1].module && !*f->v[end - 1].function)
		end--;
	for (; i < end; i++) {
		if (is_dispatch(&f->v[i]))
			continue;
		out[n].module = 0;
		out[n].loc = add_location(s, &f->v[i]);
		if (out[n++].loc == UINT32_MAX)
			return -ENOMEM;
	}
	for (i = 0; i < python.n && i < MT_MAX_ENTRIES; i++)
		out[n++] = python.frames[i];
	if (!python.n)
		*walk = f->whole ? MT_WALK_OK : MT_WALK_TRUNCATED;
	*stack = dict_number(dict__stack(s->dict, out, (uint32_t)n, *walk));
	return *stack == UINT32_MAX ? -ENOMEM : 0;
}

int native_stacks__join(struct native_stacks *s, uint32_t tid, uint64_t time, uint32_t *stack,
			uint8_t *walk)
{
	struct mt_rec_native *r = take_copy(s, tid, time);
	struct native_frames frames;
	struct native_regs regs;
	bool in_call;
	int err;

	if (!r)
		return 0;
	in_call = r->in_call;
	regs = (struct native_regs){
		.ip = r->ip, .sp = r->sp, .fp = r->fp, .lr = r->lr, .n_far = r->n_far
	};
	memcpy(regs.far, r->far, r->n_far * sizeof(*r->far));
	err = native__unwind(s->native, &regs, r + 1, r->size, &frames);
	free(r);
	return err ?: join_stacks(s, &frames, in_call, stack, walk);
}

/* Sets a counter as a fact unless it is 0. */
static void set_counter(const struct native_stacks *s, const char *what, uint64_t n)
{
	char key[64];

	snprintf(key, sizeof(key), "counter.native.%s", what);
	if (n)
		facts__setf(s->facts, key, "%" PRIu64, n);
}

void native_stacks__set_facts(const struct native_stacks *s, const uint64_t c[MT_CNT_NR])
{
	struct native_stats stats = native__stats(s->native);

	set_counter(s, "stacks", stats.stacks);
	set_counter(s, "failed", stats.failed);
	set_counter(s, "helpers_killed", stats.killed);
	set_counter(s, "forgotten", s->forgotten);
	set_counter(s, "not_copied", c[MT_CNT_NATIVE_OVER]);
}
