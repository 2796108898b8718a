/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/ending/hooks.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "capture/kernel.h"
#include "ending.skel.h"
#include "inspect/proc.h"
#include "group.h"

/* ---- the kernel's log ---- */

#define REPORTS 8	/* reports kept until find_report() asks for them */
#define LINES_MAX 65536 /* lines that read_log() reads at most */

/*
 * The OOM killer's reports in the kernel's log (/dev/kmsg). They name the limit that was reached,
 * on kernels without a probe on the OOM killer. The kernel writes at most ten in five seconds.
 * Source: dump_header(), dump_oom_victim(), __oom_kill_process() and mem_cgroup_print_oom_meminfo()
 * of Linux 5.10 to 6.18.
 */
struct oom_log {
	int fd;
	struct oom_report building; /* the report whose lines are being read */
	struct {
		pid_t pid; /* the victim; 0: free */
		struct oom_report report;
	} found[REPORTS];
	unsigned int next; /* number of reports so far; a new one replaces the oldest */
};

static const struct oom_report unknown_report = {
	.usage = UINT64_MAX, .limit = UINT64_MAX, .swap_usage = UINT64_MAX, .swap_limit = UINT64_MAX
};

/* Opens the log at its end. NULL: not readable. */
static struct oom_log *open_oom_log(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct oom_log *oom_log;

	if (fd < 0)
		return NULL;
	oom_log = calloc(1, sizeof(*oom_log));
	if (!oom_log || lseek(fd, 0, SEEK_END) < 0) {
		close(fd);
		free(oom_log);
		return NULL;
	}
	oom_log->fd = fd;
	oom_log->building = unknown_report;
	return oom_log;
}

static void close_oom_log(struct oom_log *oom_log)
{
	if (!oom_log)
		return;
	close(oom_log->fd);
	free(oom_log);
}

/* Parses "usage 716800kB, limit 716800kB". Other text leaves both unchanged. */
static void parse_use(const char *s, uint64_t *usage, uint64_t *limit)
{
	unsigned long long used, max;

	if (sscanf(s, "usage %llukB, limit %llukB", &used, &max) != 2)
		return;
	/* Larger numbers do not fit when counted in bytes. */
	*usage = used >> 53 ? UINT64_MAX : used * 1024;
	/* Without a limit, the kernel writes its largest counter. */
	*limit = max >> 52 ? UINT64_MAX : max * 1024;
}

/* Copies the value of "key=value," of the line with the victim. False: no such key, or too long. */
static bool copy_value(const char *line, const char *key, char *buf, size_t size)
{
	const char *at = strstr(line, key);
	size_t len;

	*buf = '\0';
	if (!at)
		return false;
	at += strlen(key);
	/* A cgroup's path may have commas: the next key ends it. */
	len = strcspn(at, ",");
	if (!strcmp(key, "oom_memcg=")) {
		const char *end = strstr(at, ",task_memcg=");

		len = end ? (size_t)(end - at) : len;
	}
	if (len >= size)
		return false;
	memcpy(buf, at, len);
	buf[len] = '\0';
	return true;
}

/* Sets the constraint of the report, in our words, if the line has a known one. */
static void parse_constraint(const char *line, struct oom_report *report)
{
	static const struct {
		const char *kernel, *ours;
	} names[] = { { "CONSTRAINT_NONE", "machine" },
		      { "CONSTRAINT_CPUSET", "cpuset" },
		      { "CONSTRAINT_MEMORY_POLICY", "memory policy" },
		      { "CONSTRAINT_MEMCG", "cgroup" } };
	char text[64];

	if (!copy_value(line, "oom-kill:constraint=", text, sizeof(text)))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(text, names[i].kernel))
			snprintf(report->constraint, sizeof(report->constraint), "%s",
				 names[i].ours);
	}
}

pid_t oom_report__parse_line(const char *line, struct oom_report *building)
{
	const char *pid = NULL;

	if (strstr(line, " invoked oom-killer: ")) {
		*building = unknown_report;
	} else if (text__starts(line, "memory: ")) {
		parse_use(line + 8, &building->usage, &building->limit);
	} else if (text__starts(line, "memory+swap: ")) {
		parse_use(line + 13, &building->swap_usage, &building->swap_limit);
	} else if (text__starts(line, "swap: ")) {
		parse_use(line + 6, &building->swap_usage, &building->swap_limit);
	} else if (text__starts(line, "oom-kill:constraint=")) {
		parse_constraint(line, building);
		if (strcmp(building->constraint, "cgroup") ||
		    !copy_value(line, "oom_memcg=", building->cgroup, sizeof(building->cgroup)))
			building->cgroup[0] = '\0';
		/* The task's name precedes its PID and may contain ",pid=": take the last. */
		for (const char *p = line; (p = strstr(p, ",pid=")); p = pid)
			pid = p + 5;
		return pid ? (pid_t)strtol(pid, NULL, 10) : 0;
	}
	return 0;
}

/* Reads the kernel's new lines and keeps the reports of OOM kills that are complete. */
static void read_log(struct oom_log *oom_log)
{
	char text[8192];
	ssize_t len;
	pid_t pid;

	for (int i = 0; i < LINES_MAX; i++) {
		char *line;

		len = read(oom_log->fd, text, sizeof(text) - 1);
		if (len < 0 && errno == EPIPE) /* the kernel has overwritten some lines */
			continue;
		if (len <= 0)
			return;
		text[len] = '\0';
		/* a record of /dev/kmsg: "priority,number,time,flags;text" */
		line = strchr(text, ';');
		if (!line)
			continue;
		line++;
		line[strcspn(line, "\n")] = '\0';
		pid = oom_report__parse_line(line, &oom_log->building);
		if (pid <= 0)
			continue;
		oom_log->found[oom_log->next % REPORTS].pid = pid;
		oom_log->found[oom_log->next++ % REPORTS].report = oom_log->building;
		oom_log->building = unknown_report;
	}
}

/* Reads the log on, and finds the report about the process with this PID. False: none so far. Each
 * report is found once. */
static bool find_report(struct oom_log *oom_log, pid_t pid, struct oom_report *ret)
{
	read_log(oom_log);
	for (unsigned int i = 0; i < REPORTS; i++) {
		if (oom_log->found[i].pid != pid)
			continue;
		*ret = oom_log->found[i].report;
		oom_log->found[i].pid = 0;
		return true;
	}
	return false;
}

/* ---- the programs ---- */

#define ENDS MT_WATCHED /* ends kept until ending_hooks__take(); the oldest one gives way */

struct ending_hooks {
	struct ending_bpf *skel;
	struct ring_buffer *ring;
	struct mt_rec_ending *ends; /* ENDS; pid 0: free */
	size_t next;		    /* number of the next entry of ends */
	const char *missing;	    /* text of ending_hooks__missing() */
	struct oom_log *log;	    /* NULL: not readable */
	/* Arguments of ending_hooks__consume(). */
	void (*fn)(void *ctx, const struct mt_rec_ending *r);
	void *ctx;
};

/* Callback of the ring buffer: keeps the record of an end of a process, and passes on others. */
static int on_record(void *ctx, void *data, size_t len)
{
	struct ending_hooks *hooks = ctx;
	const struct mt_rec_ending *record = data;

	if (len < sizeof(*record))
		return -EBADMSG;
	if (record->what == MT_ENDING_EXIT)
		hooks->ends[hooks->next++ % ENDS] = *record;
	else if (hooks->fn)
		hooks->fn(hooks->ctx, record);
	return 0;
}

/* Loads the programs. 0 or -errno. */
static int load(struct ending_hooks *hooks)
{
	int err;

	hooks->skel = ending_bpf__open();
	if (!hooks->skel)
		return -errno;
	hooks->skel->rodata->pid_ns = proc__pid_namespace();
	/* Only the programs of probes use the map `members`. */
	err = bpf_map__set_autocreate(hooks->skel->maps.members, false);
	return err ? err : ending_bpf__load(hooks->skel);
}

/* Says what cannot be seen without the programs that the kernel refused; "": nothing. */
static const char *name_missing(const struct ending_hooks *hooks)
{
	const struct ending_bpf *skel = hooks->skel;

	if (!skel->links.on_signal)
		return "the senders of signals, and whether one was the OOM killer";
	if (!skel->links.on_victim)
		return "whether it was the OOM killer";
	return skel->links.on_out_of_memory || hooks->log ? ""
							  : "which limit the OOM killer enforced";
}

/* Attaches all programs. Only the one on the end itself is required. 0 or -errno. */
static int attach(struct ending_hooks *hooks)
{
	struct ending_bpf *skel = hooks->skel;

	skel->links.on_exit = bpf_program__attach(skel->progs.on_exit);
	if (!skel->links.on_exit)
		return -errno;
	skel->links.on_signal = bpf_program__attach(skel->progs.on_signal);
	skel->links.on_victim = bpf_program__attach(skel->progs.on_victim);
	skel->links.on_out_of_memory = bpf_program__attach(skel->progs.on_out_of_memory);
	hooks->missing = name_missing(hooks);
	return 0;
}

/* Says why the kernel does not permit the programs. otherwise: the reason outside of a user
 * namespace. */
static const char *refusal(enum bpf_token_state state, const char *otherwise)
{
	if (state == BPF_TOKEN_NOT_NEEDED)
		return otherwise;
	if (state == BPF_TOKEN_HERE)
		return "BPF tokens of memtrace-bpf-token do not allow the programs of --on-kill: "
		       "run memtrace-bpf as root, outside of the user namespace";
	return bpf_token__text(state);
}

struct ending_hooks *ending_hooks__new(const char **why)
{
	struct ending_hooks *hooks = calloc(1, sizeof(*hooks));
	int err = -ENOMEM;

	*why = "out of memory";
	if (!hooks)
		goto failed;
	hooks->ends = calloc(ENDS, sizeof(*hooks->ends));
	if (!hooks->ends)
		goto failed;
	hooks->log = open_oom_log();
	*why = "the kernel refused the programs that see how processes end";
	libbpf_log__quiet();
	err = load(hooks);
	if (err)
		goto refused;
	hooks->ring = ring_buffer__new(bpf_map__fd(hooks->skel->maps.endings), on_record, hooks,
				       NULL);
	err = hooks->ring ? attach(hooks) : -errno;
	if (!err)
		return hooks;
refused:
	if (err == -EPERM || err == -EACCES)
		*why = refusal(bpf_token__state(), *why);
failed:
	ending_hooks__free(hooks);
	errno = -err;
	return NULL;
}

void ending_hooks__free(struct ending_hooks *hooks)
{
	if (!hooks)
		return;
	ring_buffer__free(hooks->ring);
	ending_bpf__destroy(hooks->skel);
	close_oom_log(hooks->log);
	free(hooks->ends);
	free(hooks);
}

int ending_hooks__processes_fd(const struct ending_hooks *hooks)
{
	return bpf_map__fd(hooks->skel->maps.processes);
}

int ending_hooks__follow(struct ending_hooks *hooks, pid_t pid)
{
	uint32_t key = pid, entry = 0;

	return bpf_map_update_elem(bpf_map__fd(hooks->skel->maps.processes), &key, &entry, BPF_ANY)
		       ? -errno
		       : 0;
}

const char *ending_hooks__missing(const struct ending_hooks *hooks)
{
	return hooks->missing;
}

int ending_hooks__wake_fd(const struct ending_hooks *hooks)
{
	return ring_buffer__epoll_fd(hooks->ring);
}

int ending_hooks__consume(struct ending_hooks *hooks,
			  void (*fn)(void *ctx, const struct mt_rec_ending *record), void *ctx)
{
	int n;

	hooks->fn = fn;
	hooks->ctx = ctx;
	n = ring_buffer__consume(hooks->ring);
	return n < 0 ? n : 0;
}

bool ending_hooks__take(struct ending_hooks *hooks, pid_t pid, uint64_t since,
			struct mt_rec_ending *ret)
{
	for (size_t i = 0; i < ENDS; i++) {
		if (hooks->ends[i].pid != (uint32_t)pid || hooks->ends[i].time < since)
			continue;
		*ret = hooks->ends[i];
		hooks->ends[i].pid = 0;
		return true;
	}
	return false;
}

bool ending_hooks__oom_report(struct ending_hooks *hooks, pid_t pid, struct oom_report *ret)
{
	/* The log has PIDs of the initial namespace. */
	return hooks->log && !hooks->skel->rodata->pid_ns && find_report(hooks->log, pid, ret);
}

uint64_t ending_hooks__lost(const struct ending_hooks *hooks)
{
	return __atomic_load_n(&hooks->skel->bss->lost, __ATOMIC_SEQ_CST);
}

bool ending_hooks__try(char *buf, size_t size)
{
	const char *why = "", *missing;
	struct ending_hooks *hooks = ending_hooks__new(&why);
	bool all;

	if (!hooks) {
		snprintf(buf, size, "not seen, and no --on-kill: %s (%s)", why, strerror(errno));
		return false;
	}
	missing = ending_hooks__missing(hooks);
	all = !*missing;
	if (all)
		snprintf(buf, size, "signals, the OOM killer and exit statuses are seen");
	else
		snprintf(buf, size, "this kernel does not tell %s", missing);
	ending_hooks__free(hooks);
	return all;
}
