/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Facts about target and capture, and what a session tells of itself. */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "capture/decode/autograd.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/decode/modules.h"
#include "capture/decode/symbolizer.h"
#include "capture/session/stages.h"
#include "inspect/container.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/hostmem.h"
#include "inspect/native_stacks.h"
#include "inspect/pyobj.h"

/* ---- queries, for the other files of a session and its owner ---- */

bool session__attached(const struct session *s)
{
	return s->attached;
}

bool session__no_torch(const struct session *s)
{
	return s->no_torch;
}

bool session__uses_cuda(const struct session *s)
{
	return s->target.uses_cuda;
}

bool session__has_interpreter(const struct session *s)
{
	return s->target.has_python;
}

bool session__has_python(const struct session *s)
{
	return s->target.has_python || s->target.torch.found || s->target.uses_cuda;
}

struct probes *session__probes(const struct session *s)
{
	return s->probes;
}

struct dict *session__dict(struct session *s)
{
	return s->dict;
}

struct facts *session__facts(struct session *s)
{
	return s->facts;
}

const struct proc *session__proc(const struct session *s)
{
	return s->target.proc;
}

uint64_t session__now(const struct session *s)
{
	return s->decoder ? decoder__now(s->decoder) : 0;
}

uint64_t session__start(const struct session *s)
{
	return s->decoder ? s->decoder->start : 0;
}

uint64_t session__events(const struct session *s)
{
	return s->attach ? attach_stage__events(s->attach) : 0;
}

uint64_t session__lost(const struct session *s)
{
	return s->losses.total;
}

uint64_t session__lost_with_room(const struct session *s)
{
	uint64_t lost = s->losses.unseen + s->losses.skipped.events;

	if (s->opts.inside)
		return s->losses.total; /* a full ring loses nothing: threads wait for room */
	for (size_t i = 0; i < MT_REC_TYPES; i++)
		lost += s->losses.unaccounted[i];
	return lost < s->losses.total ? lost : s->losses.total;
}

uint64_t session__steps(const struct session *s)
{
	return s->decoder ? decoder__steps(s->decoder) : 0;
}

bool session__replaced(const struct session *s)
{
	int image;
	bool has_program;

	if (s->image < 0 || !proc__image_gone(s->image))
		return false;
	/* The image of an ending process is gone, too, but there is no new one. */
	image = proc__image(s->target.proc);
	has_program = image >= 0 && !proc__image_gone(image);
	if (image >= 0)
		close(image);
	return has_program;
}

const char *session__python_problem(const struct session *s)
{
	/* Programs without Python need no lines of it. */
	bool wanted = s->target.has_python || !s->no_torch;

	return wanted && s->target.python_why[0] ? s->target.python_why : NULL;
}

bool session__lacks_number(const struct session *s)
{
	return s->wait.lacks_number;
}

bool session__found_torch(const struct session *s)
{
	return s->target.torch.found || s->no_torch;
}

uint32_t session__number(const struct session *s)
{
	return s->opts.number;
}

bool session__is_forked(const struct session *s)
{
	return s->forked;
}

bool session__misses_forks(const struct session *s)
{
	for (int i = 0; i < HOOK_NR; i++) {
		if (s->target.hooks[i].found && elf__is_memory(s->target.hooks[i].elf))
			return true;
	}
	return s->decoder && s->decoder->calls && cuda_calls__by_pid(s->decoder->calls);
}

/* Sets the fact "cmdline": the arguments as one JSON array. */
static int set_cmdline(struct session *s)
{
	const char *args;
	size_t len;
	char *text = NULL;
	size_t size;
	struct json *j;
	FILE *out = open_memstream(&text, &size);
	int err;

	if (!out)
		return -ENOMEM;
	proc__complete_cmdline(s->target.proc);
	args = proc__cmdline(s->target.proc, &len);
	j = json__new(out, false);
	if (!j) {
		fclose(out);
		free(text);
		return -ENOMEM;
	}
	json__open_array(j, NULL);
	for (size_t at = 0; at < len; at += strlen(args + at) + 1)
		json__string(j, NULL, args + at);
	json__close_array(j);
	json__free(j);
	err = fclose(out) ? -errno : 0;
	if (!err) {
		text[strcspn(text, "\n")] = '\0';
		err = facts__set(s->facts, "cmdline", text);
	}
	free(text);
	return err;
}

/* Sets the fact `key` to the target of the link /proc/PID/NAME, if it is readable. */
static void set_link_fact(struct session *s, const char *key, const char *name)
{
	char path[64], buf[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)proc__pid(s->target.proc), name);
	n = readlink(path, buf, sizeof(buf) - 1);
	if (n > 0) {
		buf[n] = '\0';
		facts__set(s->facts, key, buf);
	}
}

/* Sets a fact unless the value is empty or NULL. 0 or -ENOMEM. */
static int set_known(struct session *s, const char *key, const char *value)
{
	return value && value[0] ? facts__set(s->facts, key, value) : 0;
}

/* Sets the facts about control group, container and pod. */
static int set_place(struct session *s)
{
	pid_t pid = proc__pid(s->target.proc);
	struct container_names n;
	struct cgroup c;
	int err = 0;

	if (cgroup__read(pid, &c))
		return 0; /* the process has ended */
	container__names(pid, &c, "", &n);
	err |= set_known(s, "cgroup", c.path);
	err |= set_known(s, "container", c.container[0] ? c.container : c.name);
	err |= set_known(s, "container.runtime", c.runtime);
	err |= set_known(s, "container.name", n.name);
	err |= set_known(s, "container.name_from", n.name_from);
	err |= set_known(s, "pod", n.pod[0] ? n.pod : c.pod);
	err |= set_known(s, "pod.uid", c.pod);
	err |= set_known(s, "pod.namespace", n.space);
	err |= set_known(s, "pod.name_from", n.pod_from);
	return err;
}

/* Sets the facts about the CUDA allocator that replays need: the folder of its library, and its
 * settings. PyTorch 2.9 looks for the first name first. */
static int set_allocator(struct session *s)
{
	static const char *const names[] = { "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF" };
	const struct maps *m = &s->target.maps;
	char conf[4096];
	int err = 0;

	for (size_t i = 0; i < m->n && !facts__get(s->facts, "torch_lib"); i++) {
		const char *name = strrchr(m->v[i].path, '/');

		if (name && !strcmp(name, "/libc10_cuda.so"))
			err |= facts__setf(s->facts, "torch_lib", "%.*s",
					   (int)(name - m->v[i].path), m->v[i].path);
	}
	for (size_t i = 0; i < 2; i++) {
		int found = environ__get(s->target.proc, m, names[i], conf, sizeof(conf));

		if (!found || (found == -ENOENT && i == 1))
			return err | facts__set(s->facts, "alloc_conf", found ? "" : conf);
		if (found != -ENOENT)
			break; /* unreadable: no fact */
	}
	return err;
}

int session__set_torch_facts(struct session *s)
{
	const struct torch_info *t = &s->target.torch;
	int err = facts__set(s->facts, "torch", t->version);

	if (t->cuda_runtime[0])
		err |= facts__set(s->facts, "cuda_runtime", t->cuda_runtime);
	if (t->cuda)
		err |= set_allocator(s);
	return err ? -ENOMEM : 0;
}

int session__set_who(struct session *s)
{
	int err = facts__setf(s->facts, "pid", "%d", (int)proc__pid(s->target.proc));

	err |= facts__set(s->facts, "comm", proc__comm(s->target.proc));
	return err | set_cmdline(s) ? -ENOMEM : 0;
}

int session__set_facts(struct session *s)
{
	const struct target *t = &s->target;
	char stdlib[4096], version[32];
	int err = session__set_who(s);
	struct utsname un;

	set_link_fact(s, "exe", "exe");
	set_link_fact(s, "cwd", "cwd");
	if (t->python) {
		python__version_text(t->python, version, sizeof(version));
		err |= facts__set(s->facts, "python", version);
		if (python__stdlib(t->python, stdlib, sizeof(stdlib)) == 0)
			err |= facts__set(s->facts, "stdlib", stdlib);
	}
	if (t->python_why[0])
		err |= facts__set(s->facts, "python_problem", t->python_why);
	err |= session__set_torch_facts(s);
	session__set_rank(s);
	err |= set_place(s);
	err |= facts__set(s->facts, "version", MEMTRACE_VERSION);
	if (uname(&un) == 0) {
		err |= facts__set(s->facts, "kernel", un.release);
		if (*un.nodename)
			err |= facts__set(s->facts, "hostname", un.nodename);
	}
	return err | session__set_start(s) ? -ENOMEM : 0;
}

/* For rank_env__find(): reads a variable of the process. 0, or nonzero if it is not known. */
static int get_variable(void *ctx, const char *name, char *buf, size_t size)
{
	struct session *s = ctx;

	return environ__get(s->target.proc, &s->target.maps, name, buf, size);
}

/* Sets the fact `key` to n, if `known` is true and the fact is not set yet. */
static void set_number(struct session *s, const char *key, bool known, uint64_t n)
{
	if (known && !facts__get(s->facts, key))
		facts__setf(s->facts, key, "%" PRIu64, n);
}

/* Launchers tell each process its rank in the environment, some after they have forked it. */
void session__set_rank(struct session *s)
{
	struct rank_env r;

	if (facts__get(s->facts, "rank"))
		return;
	rank_env__find(get_variable, s, &r);
	set_number(s, "rank", r.has_rank, r.rank);
	set_number(s, "local_rank", r.has_local, r.local);
	set_number(s, "world_size", r.has_world, r.world);
	if (r.from)
		facts__set(s->facts, "rank_from", r.from);
}

void session__set_parent(struct session *s, pid_t parent)
{
	if (parent > 0)
		facts__setf(s->facts, "parent", "%d", (int)parent);
}

void session__set_process(struct session *s)
{
	char name[256];

	facts__setf(s->facts, "process_started", "%" PRIu64, proc__started(s->target.proc));
	if (s->target.python && !pynames__process(s->target.python, name, sizeof(name)))
		facts__set(s->facts, "process_name", name);
}

/* Sets the facts about NTP: whether the kernel's clock is synchronized, and its largest error. */
static int set_ntp(struct session *s)
{
	struct timex t = { .modes = 0 };
	int err;

	if (adjtimex(&t) < 0)
		return 0; /* refused, such as by a container's filter: not known */
	err = facts__set(s->facts, "clock_ntp", t.status & STA_UNSYNC ? "no" : "yes");
	if (!(t.status & STA_UNSYNC) && t.maxerror >= 0)
		err |= facts__setf(s->facts, "clock_ntp_error_ns", "%ld", t.maxerror * 1000);
	return err;
}

int session__set_start(struct session *s)
{
	uint64_t now, wall = clock__wall(&now);
	char when[40];
	int err;

	text__date(when, sizeof(when), wall);
	err = facts__set(s->facts, "start", when);
	if (session__start(s))
		err |= facts__setf(s->facts, "clock_zero_ns", "%" PRIu64,
				   wall - (now - session__start(s))) |
		       set_ntp(s);
	if (session__start(s) && s->opts.clock_offset.known)
		err |= facts__setf(s->facts, "clock_offset_ns", "%" PRId64,
				   s->opts.clock_offset.offset) |
		       facts__setf(s->facts, "clock_offset_error_ns", "%" PRIu64,
				   s->opts.clock_offset.error);
	return err ? -ENOMEM : 0;
}

void session__set_clock_end(struct session *s)
{
	uint64_t now, wall = clock__wall(&now), zero;

	if (facts__number(s->facts, "clock_zero_ns", &zero))
		facts__setf(s->facts, "clock_moved_ns", "%" PRId64,
			    (int64_t)(wall - (now - session__start(s)) - zero));
}

static void set_unless_0(struct session *s, const char *key, uint64_t n)
{
	if (n)
		facts__setf(s->facts, key, "%" PRIu64, n);
}

/* Sets the fact "counter.GROUP.NAME", unless n is 0. */
static void set_counter(struct session *s, const char *group, const char *name, uint64_t n)
{
	char key[64];

	snprintf(key, sizeof(key), "counter.%s.%s", group, name);
	set_unless_0(s, key, n);
}

/* Hits of a type of record for the facts. For each type, hits = records + filtered + lost +
 * unaccounted. While probes are in place, some hits have no outcome yet, and records were taken
 * after c was read: then returns the sum of the outcomes that are known. */
static uint64_t known_hits(struct session *s, size_t type, const uint64_t c[MT_CNT_NR])
{
	if (s->blind || !session__has_hits(s, type))
		return c[MT_CNT_HIT + type];
	return probes__records(s->probes, s->opts.number, type) + c[MT_CNT_FILTERED + type] +
	       c[MT_CNT_RING_LOST + type];
}

void session__set_counters(struct session *s, const uint64_t c[MT_CNT_NR])
{
	static const char *const types[] = {
		[MT_REC_REPORT] = "report",	    [MT_REC_OOM] = "oom",
		[MT_REC_CPU_NEW] = "cpu_new",	    [MT_REC_CPU_DELETE] = "cpu_delete",
		[MT_REC_STACK] = "stack",	    [MT_REC_CODE_GONE] = "code_gone",
		[MT_REC_SCOPE_END] = "scope_end",   [MT_REC_MODULE_CALL] = "module_call",
		[MT_REC_CUDA_CALL] = "cuda_call",   [MT_REC_REQUESTED] = "asked",
		[MT_REC_SET_DEVICE] = "set_device", [MT_REC_EDGE] = "autograd_edge",
		[MT_REC_NODE] = "autograd_node",    [MT_REC_MODULE_LEAVE] = "module_leave",
		[MT_REC_NATIVE] = "native",	    [MT_REC_HOST] = "host",
		[MT_REC_MALLOC] = "malloc",	    [MT_REC_MALLOC_FREE] = "malloc_free",
		[MT_REC_TENSOR] = "tensor"
	};
	struct names_stats ns = symbolizer__stats(s->decoder->names);
	size_t i;

	for (i = 1; i < sizeof(types) / sizeof(types[0]); i++) {
		set_counter(s, "hits", types[i], known_hits(s, i, c));
		set_counter(s, "records", types[i], probes__records(s->probes, s->opts.number, i));
		set_counter(s, "filtered", types[i], c[MT_CNT_FILTERED + i]);
		set_counter(s, "lost", types[i], c[MT_CNT_RING_LOST + i]);
		set_counter(s, "unaccounted", types[i], s->losses.unaccounted[i]);
	}
	for (i = 0; i < MT_WALK_NR; i++)
		set_counter(s, "walks", facts__walk_name(i), c[MT_CNT_WALK + i]);
	set_counter(s, "walked_again", "all", c[MT_CNT_AGAIN]);
	set_counter(s, "walked_again", "otherwise", c[MT_CNT_AGAIN_OTHER]);
	cuda_calls__set_facts(s->decoder, c);
	autograd__set_facts(s->decoder, c);
	modules__set_facts(s->decoder, c);
	if (s->decoder->native)
		native_stacks__set_facts(s->decoder->native, c);
	host_memory__set_facts(s->decoder->host, s->facts);
	set_unless_0(s, "counter.reports_unseen", s->losses.unseen);
	set_unless_0(s, "counter.breakpoints_removed", s->losses.removed);
	set_unless_0(s, "counter.skipped.events", s->losses.skipped.events);
	set_unless_0(s, "counter.skipped.host", s->losses.skipped.host);
	set_unless_0(s, "counter.malloc.no_room", c[MT_CNT_MALLOC_FULL]);
	set_unless_0(s, "counter.twins", s->decoder->twins);
	set_unless_0(s, "counter.faults_retried", c[MT_CNT_FAULT_RETRIED]);
	set_unless_0(s, "counter.pages_brought_in", s->losses.brought_in);
	facts__setf(s->facts, "counter.frames", "%" PRIu64, ns.frames);
	facts__setf(s->facts, "counter.frames_unreadable", "%" PRIu64, ns.unreadable);
	facts__setf(s->facts, "counter.frames_gone", "%" PRIu64, ns.gone);
	facts__setf(s->facts, "counter.modules_unnamed", "%" PRIu64, ns.unnamed_modules);
	facts__setf(s->facts, "counter.code_objects", "%" PRIu64, ns.codes);
	set_unless_0(s, "counter.names_no_room", ns.no_room);
	facts__setf(s->facts, "counter.stacks_again", "%" PRIu64, s->decoder->stacks_again);
	facts__setf(s->facts, "counter.stacks_unknown", "%" PRIu64, s->decoder->unknown_stacks);
	facts__setf(s->facts, "sleepable", "%d", probes__sleepable(s->probes));
}
