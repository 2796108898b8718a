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
#include "capture/decode/phases.h"
#include "capture/decode/oom_tensors.h"
#include "capture/decode/symbolizer.h"
#include "capture/session/stages.h"
#include "inspect/container.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/hostmem.h"
#include "inspect/native_stacks.h"
#include "inspect/pyobj.h"

/* ---- queries, for the other files of a session and its owner ---- */

bool session__attached(const struct session *session)
{
	return session->attached;
}

bool session__no_torch(const struct session *session)
{
	return session->no_torch;
}

bool session__uses_cuda(const struct session *session)
{
	return session->target.uses_cuda;
}

bool session__has_interpreter(const struct session *session)
{
	return session->target.has_python;
}

bool session__has_python(const struct session *session)
{
	return session->target.has_python || session->target.torch.found ||
	       session->target.uses_cuda;
}

struct probes *session__probes(const struct session *session)
{
	return session->probes;
}

struct dict *session__dict(struct session *session)
{
	return session->dict;
}

struct facts *session__facts(struct session *session)
{
	return session->facts;
}

const struct proc *session__proc(const struct session *session)
{
	return session->target.proc;
}

uint64_t session__now(const struct session *session)
{
	return session->decoder ? decoder__now(session->decoder) : 0;
}

uint64_t session__start(const struct session *session)
{
	return session->decoder ? session->decoder->start : 0;
}

uint64_t session__events(const struct session *session)
{
	return session->attach ? attach_stage__events(session->attach) : 0;
}

uint64_t session__lost(const struct session *session)
{
	return session->losses.total;
}

uint64_t session__lost_with_room(const struct session *session)
{
	uint64_t lost = session->losses.unseen + session->losses.skipped.events;

	if (session->opts.inside)
		return session->losses.total; /* a full ring loses nothing: threads wait for room */
	for (size_t i = 0; i < MT_REC_TYPES; i++)
		lost += session->losses.unaccounted[i];
	return lost < session->losses.total ? lost : session->losses.total;
}

uint64_t session__steps(const struct session *session)
{
	return session->decoder ? decoder__steps(session->decoder) : 0;
}

bool session__replaced(const struct session *session)
{
	int image;
	bool has_program;

	if (session->image < 0 || !proc__image_gone(session->image))
		return false;
	/* The image of an ending process is gone, too, but there is no new one. */
	image = proc__image(session->target.proc);
	has_program = image >= 0 && !proc__image_gone(image);
	if (image >= 0)
		close(image);
	return has_program;
}

const char *session__python_problem(const struct session *session)
{
	/* Programs without Python need no lines of it. */
	bool wanted = session->target.has_python || !session->no_torch;

	return wanted && session->target.python_why[0] ? session->target.python_why : NULL;
}

bool session__lacks_number(const struct session *session)
{
	return session->wait.lacks_number;
}

bool session__found_torch(const struct session *session)
{
	return session->target.torch.found || session->no_torch;
}

uint32_t session__number(const struct session *session)
{
	return session->opts.number;
}

bool session__is_forked(const struct session *session)
{
	return session->forked;
}

bool session__misses_forks(const struct session *session)
{
	for (int i = 0; i < HOOK_NR; i++) {
		if (session->target.hooks[i].found && elf__is_memory(session->target.hooks[i].elf))
			return true;
	}
	return session->decoder && session->decoder->calls &&
	       cuda_calls__by_pid(session->decoder->calls);
}

/* Sets a fact to a JSON array. put() writes what is in the array. 0 or -errno. */
static int set_array(struct session *session, const char *key,
		     void (*put)(const struct session *session, struct json *json))
{
	char *text = NULL;
	size_t size;
	struct json *json;
	FILE *out = open_memstream(&text, &size);
	int err;

	if (!out)
		return -ENOMEM;
	json = json__new(out, false);
	if (!json) {
		fclose(out);
		free(text);
		return -ENOMEM;
	}
	json__open_array(json, NULL);
	put(session, json);
	json__close_array(json);
	json__free(json);
	err = fclose(out) ? -errno : 0;
	if (!err) {
		text[strcspn(text, "\n")] = '\0';
		err = facts__set(session->facts, key, text);
	}
	free(text);
	return err;
}

static void put_arguments(const struct session *session, struct json *json)
{
	size_t len;
	const char *args = proc__cmdline(session->target.proc, &len);

	for (size_t at = 0; at < len; at += strlen(args + at) + 1)
		json__string(json, NULL, args + at);
}

static void put_scopes(const struct session *session, struct json *json)
{
	for (size_t i = 0; i < STREAM_SCOPES && session->opts.scopes[i]; i++)
		json__string(json, NULL, session->opts.scopes[i]);
}

static int set_cmdline(struct session *session)
{
	proc__complete_cmdline(session->target.proc);
	return set_array(session, "cmdline", put_arguments);
}

/* Sets the fact `key` to the target of the link /proc/PID/NAME, if it is readable. */
static void set_link_fact(struct session *session, const char *key, const char *name)
{
	char path[64], buf[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)proc__pid(session->target.proc), name);
	n = readlink(path, buf, sizeof(buf) - 1);
	if (n > 0) {
		buf[n] = '\0';
		facts__set(session->facts, key, buf);
	}
}

/* Sets a fact unless the value is empty or NULL. 0 or -ENOMEM. */
static int set_known(struct session *session, const char *key, const char *value)
{
	return value && value[0] ? facts__set(session->facts, key, value) : 0;
}

/* Sets the facts about control group, container and pod. */
static int set_place(struct session *session)
{
	pid_t pid = proc__pid(session->target.proc);
	struct container_names names;
	struct cgroup cgroup;
	int err = 0;

	if (cgroup__read(pid, &cgroup))
		return 0; /* the process has ended */
	container__names(pid, &cgroup, "", &names);
	err |= set_known(session, "cgroup", cgroup.path);
	err |= set_known(session, "container",
			 cgroup.container[0] ? cgroup.container : cgroup.name);
	err |= set_known(session, "container.runtime", cgroup.runtime);
	err |= set_known(session, "container.name", names.name);
	err |= set_known(session, "container.name_from", names.name_from);
	err |= set_known(session, "pod", names.pod[0] ? names.pod : cgroup.pod);
	err |= set_known(session, "pod.uid", cgroup.pod);
	err |= set_known(session, "pod.namespace", names.space);
	err |= set_known(session, "pod.name_from", names.pod_from);
	return err;
}

/* Sets the facts about the CUDA allocator that replays need: the folder of its library, and its
 * settings. PyTorch 2.9 looks for the first name first. */
static int set_allocator(struct session *session)
{
	static const char *const names[] = { "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF" };
	const struct maps *maps = &session->target.maps;
	char conf[4096];
	int err = 0;

	for (size_t i = 0; i < maps->n && !facts__get(session->facts, "torch_lib"); i++) {
		const char *name = strrchr(maps->v[i].path, '/');

		if (name && !strcmp(name, "/libc10_cuda.so"))
			err |= facts__setf(session->facts, "torch_lib", "%.*s",
					   (int)(name - maps->v[i].path), maps->v[i].path);
	}
	for (size_t i = 0; i < 2; i++) {
		int found = environ__get(session->target.proc, maps, names[i], conf, sizeof(conf));

		if (!found || (found == -ENOENT && i == 1))
			return err | facts__set(session->facts, "alloc_conf", found ? "" : conf);
		if (found != -ENOENT)
			break; /* unreadable: no fact */
	}
	return err;
}

int session__set_torch_facts(struct session *session)
{
	const struct torch_info *t = &session->target.torch;
	int err = facts__set(session->facts, "torch", t->version);

	if (t->cuda_runtime[0])
		err |= facts__set(session->facts, "cuda_runtime", t->cuda_runtime);
	if (t->cuda)
		err |= set_allocator(session);
	return err ? -ENOMEM : 0;
}

int session__set_who(struct session *session)
{
	int err = facts__setf(session->facts, "pid", "%d", (int)proc__pid(session->target.proc));

	err |= facts__set(session->facts, "comm", proc__comm(session->target.proc));
	return err | set_cmdline(session) ? -ENOMEM : 0;
}

int session__set_facts(struct session *session)
{
	const struct target *target = &session->target;
	char stdlib[4096], version[32];
	int err = session__set_who(session);
	struct utsname un;

	set_link_fact(session, "exe", "exe");
	set_link_fact(session, "cwd", "cwd");
	if (target->python) {
		python__version_text(target->python, version, sizeof(version));
		err |= facts__set(session->facts, "python", version);
		if (python__stdlib(target->python, stdlib, sizeof(stdlib)) == 0)
			err |= facts__set(session->facts, "stdlib", stdlib);
	}
	if (target->python_why[0])
		err |= facts__set(session->facts, "python_problem", target->python_why);
	err |= session__set_torch_facts(session);
	session__set_rank(session);
	err |= set_place(session);
	err |= facts__set(session->facts, "version", MEMTRACE_VERSION);
	if (session->opts.scopes[0])
		err |= set_array(session, "scopes", put_scopes);
	if (uname(&un) == 0) {
		err |= facts__set(session->facts, "kernel", un.release);
		if (*un.nodename)
			err |= facts__set(session->facts, "hostname", un.nodename);
	}
	return err | session__set_start(session) ? -ENOMEM : 0;
}

/* For rank_env__find(): reads a variable of the process. 0, or nonzero if it is not known. */
static int get_variable(void *ctx, const char *name, char *buf, size_t size)
{
	struct session *session = ctx;

	return environ__get(session->target.proc, &session->target.maps, name, buf, size);
}

/* Sets the fact `key` to n, if `known` is true and the fact is not set yet. */
static void set_number(struct session *session, const char *key, bool known, uint64_t n)
{
	if (known && !facts__get(session->facts, key))
		facts__setf(session->facts, key, "%" PRIu64, n);
}

/* Launchers tell each process its rank in the environment, some after they have forked it. */
void session__set_rank(struct session *session)
{
	struct rank_env rank;

	if (facts__get(session->facts, "rank"))
		return;
	rank_env__find(get_variable, session, &rank);
	set_number(session, "rank", rank.has_rank, rank.rank);
	set_number(session, "local_rank", rank.has_local, rank.local);
	set_number(session, "world_size", rank.has_world, rank.world);
	if (rank.from)
		facts__set(session->facts, "rank_from", rank.from);
}

void session__set_parent(struct session *session, pid_t parent)
{
	if (parent > 0)
		facts__setf(session->facts, "parent", "%d", (int)parent);
}

void session__set_process(struct session *session)
{
	char name[256];

	facts__setf(session->facts, "process_started", "%" PRIu64,
		    proc__started(session->target.proc));
	if (session->target.python && !pynames__process(session->target.python, name, sizeof(name)))
		facts__set(session->facts, "process_name", name);
}

/* Sets the facts about NTP: whether the kernel's clock is synchronized, and its largest error. */
static int set_ntp(struct session *session)
{
	struct timex t = { .modes = 0 };
	int err;

	if (adjtimex(&t) < 0)
		return 0; /* refused, such as by a container's filter: not known */
	err = facts__set(session->facts, "clock_ntp", t.status & STA_UNSYNC ? "no" : "yes");
	if (!(t.status & STA_UNSYNC) && t.maxerror >= 0)
		err |= facts__setf(session->facts, "clock_ntp_error_ns", "%ld", t.maxerror * 1000);
	return err;
}

int session__set_start(struct session *session)
{
	uint64_t now, wall = clock__wall(&now);
	char when[40];
	int err;

	text__date(when, sizeof(when), wall);
	err = facts__set(session->facts, "start", when);
	if (session__start(session))
		err |= facts__setf(session->facts, "clock_zero_ns", "%" PRIu64,
				   wall - (now - session__start(session))) |
		       set_ntp(session);
	if (session__start(session) && session->opts.clock_offset.known)
		err |= facts__setf(session->facts, "clock_offset_ns", "%" PRId64,
				   session->opts.clock_offset.offset) |
		       facts__setf(session->facts, "clock_offset_error_ns", "%" PRIu64,
				   session->opts.clock_offset.error);
	return err ? -ENOMEM : 0;
}

void session__set_clock_end(struct session *session)
{
	uint64_t now, wall = clock__wall(&now), zero;

	if (facts__number(session->facts, "clock_zero_ns", &zero))
		facts__setf(session->facts, "clock_moved_ns", "%" PRId64,
			    (int64_t)(wall - (now - session__start(session)) - zero));
}

static void set_unless_0(struct session *session, const char *key, uint64_t n)
{
	if (n)
		facts__setf(session->facts, key, "%" PRIu64, n);
}

/* Sets the fact "counter.GROUP.NAME", unless n is 0. */
static void set_counter(struct session *session, const char *group, const char *name, uint64_t n)
{
	char key[64];

	snprintf(key, sizeof(key), "counter.%s.%s", group, name);
	set_unless_0(session, key, n);
}

/* Hits of a type of record for the facts. For each type, hits = records + filtered + lost +
 * unaccounted. While probes are in place, some hits have no outcome yet, and records were taken
 * after counters was read: then returns the sum of the outcomes that are known. */
static uint64_t known_hits(struct session *session, size_t type, const uint64_t counters[MT_CNT_NR])
{
	if (session->blind || !session__has_hits(session, type))
		return counters[MT_CNT_HIT + type];
	return probes__records(session->probes, session->opts.number, type) +
	       counters[MT_CNT_FILTERED + type] + counters[MT_CNT_RING_LOST + type];
}

void session__set_counters(struct session *session, const uint64_t counters[MT_CNT_NR])
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
		[MT_REC_TENSOR] = "tensor",	    [MT_REC_SCOPE] = "scope"
	};
	struct names_stats names = symbolizer__stats(session->decoder->names);
	size_t i;

	for (i = 1; i < sizeof(types) / sizeof(types[0]); i++) {
		set_counter(session, "hits", types[i], known_hits(session, i, counters));
		set_counter(session, "records", types[i],
			    probes__records(session->probes, session->opts.number, i));
		set_counter(session, "filtered", types[i], counters[MT_CNT_FILTERED + i]);
		set_counter(session, "lost", types[i], counters[MT_CNT_RING_LOST + i]);
		set_counter(session, "unaccounted", types[i], session->losses.unaccounted[i]);
	}
	for (i = 0; i < MT_WALK_NR; i++)
		set_counter(session, "walks", facts__walk_name(i), counters[MT_CNT_WALK + i]);
	set_counter(session, "walked_again", "all", counters[MT_CNT_AGAIN]);
	set_counter(session, "walked_again", "otherwise", counters[MT_CNT_AGAIN_OTHER]);
	cuda_calls__set_facts(session->decoder, counters);
	autograd__set_facts(session->decoder, counters);
	modules__set_facts(session->decoder, counters);
	if (session->decoder->native)
		native_stacks__set_facts(session->decoder->native, counters);
	host_memory__set_facts(session->decoder->host, session->facts);
	phases__set_facts(session->decoder->phases, session->facts);
	set_unless_0(session, "counter.reports_unseen", session->losses.unseen);
	set_unless_0(session, "counter.breakpoints_removed", session->losses.removed);
	set_unless_0(session, "counter.skipped.events", session->losses.skipped.events);
	set_unless_0(session, "counter.skipped.host", session->losses.skipped.host);
	set_unless_0(session, "counter.malloc.no_room", counters[MT_CNT_MALLOC_FULL]);
	set_unless_0(session, "counter.twins", session->decoder->twins);
	set_unless_0(session, "counter.faults_retried", counters[MT_CNT_FAULT_RETRIED]);
	set_unless_0(session, "counter.pages_brought_in", session->losses.brought_in);
	facts__setf(session->facts, "counter.frames", "%" PRIu64, names.frames);
	facts__setf(session->facts, "counter.frames_unreadable", "%" PRIu64, names.unreadable);
	facts__setf(session->facts, "counter.frames_gone", "%" PRIu64, names.gone);
	facts__setf(session->facts, "counter.modules_unnamed", "%" PRIu64, names.unnamed_modules);
	facts__setf(session->facts, "counter.code_objects", "%" PRIu64, names.codes);
	set_unless_0(session, "counter.names_no_room", names.no_room);
	set_unless_0(session, "counter.tensors_no_room", oom_tensors__no_room(session->decoder));
	facts__setf(session->facts, "counter.stacks_again", "%" PRIu64,
		    session->decoder->stacks_again);
	facts__setf(session->facts, "counter.stacks_unknown", "%" PRIu64,
		    session->decoder->unknown_stacks);
	facts__setf(session->facts, "sleepable", "%d", probes__sleepable(session->probes));
}
