/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "base/user.h"
#include "inspect/container.h"
#include "inspect/gpu_holders.h"
#include "inspect/nvml/holder_process.h"
#include "inspect/nvml/holder_sleep.h"
#include "inspect/proc.h"

#define NODES_MAX 64	      /* minor numbers above it are control nodes */
#define FILES_MAX 65536	      /* descriptors of a process that are looked at */
#define ENVIRON_MAX (1 << 18) /* bytes of an environment that are read */

static void put_clean(char *buf, size_t size, const char *text)
{
	text__clean(buf, size, text, strlen(text));
}

/* ---- texts of /proc/PID ---- */

bool holder_process__parse_stat(struct holder_process *p, const char *text, pid_t *session)
{
	/* The name, in parentheses, may have any character. */
	const char *after = strrchr(text, ')');
	unsigned long long ticks, per_second = (unsigned long long)sysconf(_SC_CLK_TCK);
	int parent, group;
	char state;

	if (!after ||
	    sscanf(after,
		   ") %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &state, &parent, &group, session, &ticks) != 5)
		return false;
	p->state = state;
	p->parent = parent;
	p->started = ticks / per_second * 1000000000 + ticks % per_second * 1000000000 / per_second;
	return true;
}

/* Reads user and inner PID. */
static void read_status(struct holder_process *p)
{
	char text[8192];
	const char *line, *last;
	unsigned uid;

	if (io__text_of_process(p->pid, "status", text, sizeof(text)) <= 0)
		return;
	/* The name is the first line, and the kernel escapes line ends in it. */
	line = strstr(text, "\nUid:");
	if (line && sscanf(line, "\nUid: %*u %u", &uid) == 1)
		p->uid = uid;
	line = strstr(text, "\nNSpid:");
	if (!line)
		return;
	line += strlen("\nNSpid:");
	last = line;
	for (; *line && *line != '\n'; line++)
		if (*line == '\t' || *line == ' ')
			last = line;
	p->inner = (pid_t)strtol(last, NULL, 10);
}

/* Writes the name of a process's program. */
static void read_comm(pid_t pid, char *buf, size_t size)
{
	char text[64];

	*buf = '\0';
	if (io__text_of_process(pid, "comm", text, sizeof(text)) <= 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	put_clean(buf, size, text);
}

/* Writes the command line, or the name in brackets if there is none, as of a zombie. */
static void read_command(struct holder_process *p)
{
	char comm[64];

	if (*proc__command_line(p->pid, p->command, sizeof(p->command)))
		return;
	read_comm(p->pid, comm, sizeof(comm));
	snprintf(p->command, sizeof(p->command), "[%s]", comm);
}

/* ---- jobs and containers ---- */

/* The value of a variable in an initial environment, or NULL. */
static const char *variable(const char *env, size_t len, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = env; at < env + len; at += strlen(at) + 1)
		if (!strncmp(at, name, n) && at[n] == '=' && at[n + 1])
			return at + n + 1;
	return NULL;
}

static void add_job(struct holder_process *p, const char *what, const char *id, size_t id_len)
{
	size_t len = strlen(p->job);
	char clean[64];

	text__clean(clean, sizeof(clean), id, id_len < 40 ? id_len : 40);
	snprintf(p->job + len, sizeof(p->job) - len, "%s%s %s", len ? ", " : "", what, clean);
}

/* Returns the number of the job in a control group that Slurm made, and NULL for others. Below a
 * group of their own, users and root of a container may give any names. */
static const char *slurms_job(const char *cgroup)
{
	static const char system[] = "/system.slice/", end[] = "slurmstepd.scope/job_";
	const char *at;
	size_t len;

	if (text__starts(cgroup, "/slurm/") || text__starts(cgroup, "/slurm_")) {
		at = strstr(cgroup, "/job_");
		return at ? at + strlen("/job_") : NULL;
	}
	if (!text__starts(cgroup, system))
		return NULL;
	at = strstr(cgroup, end);
	len = strcspn(cgroup + strlen(system), "/");
	/* The scope is the first group in the slice. */
	if (!at || at + strlen("slurmstepd.scope") != cgroup + strlen(system) + len)
		return NULL;
	return at + strlen(end);
}

void holder_process__set_job(struct holder_process *p, const char *cgroup, const char *env,
			     size_t len)
{
	static const struct {
		const char *name, *variable;
	} jobs[] = { { "slurm", "SLURM_JOB_ID" },
		     { "ray", "RAY_JOB_ID" },
		     { "lsf", "LSB_JOBID" },
		     { "pbs", "PBS_JOBID" } };
	/* "/slurm/uid_1000/job_123/step_0", "/system.slice/slurmstepd.scope/job_123/step_0",
	   "/system.slice/node1_slurmstepd.scope/job_123/step_0" */
	const char *slurm = strstr(cgroup, "/slurm") ?: strstr(cgroup, "_slurmstepd.scope/");
	const char *id, *sure = slurms_job(cgroup);
	size_t digits;

	p->job[0] = p->end_all[0] = '\0';
	slurm = slurm ? strstr(slurm, "/job_") : NULL;
	digits = slurm ? strspn(slurm + strlen("/job_"), "0123456789") : 0;
	if (digits)
		add_job(p, "slurm", slurm + strlen("/job_"), digits);
	digits = sure ? strspn(sure, "0123456789") : 0;
	if (digits && digits < 20)
		snprintf(p->end_all, sizeof(p->end_all), "scancel %.*s", (int)digits, sure);
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		id = variable(env, len, jobs[i].variable);
		if (id && (i || !*p->job))
			add_job(p, jobs[i].name, id, strlen(id));
	}
}

/* Sets the names that the runtime has, or the process itself. */
static void set_names(struct holder_process *p, const struct cgroup *c)
{
	struct container_names names;

	container__names(p->pid, c, "", &names);
	container__show(c, &names, p->container, p->pod);
	if (!*p->end_all && !p->container_gone)
		container__end_command(p->end_all, sizeof(p->end_all), c, &names);
}

/* ---- parents ---- */

/* True if the process collects orphans: the first one of a PID namespace. */
static bool is_init(pid_t pid)
{
	struct holder_process p = { .pid = pid };

	if (pid == 1)
		return true;
	read_status(&p);
	return p.inner == 1;
}

/* True for what has no parent by intention: NVIDIA's daemons, and services of systemd. */
static bool is_daemon(const struct holder_process *p, const char *cgroup)
{
	static const char service[] = ".service";
	size_t len = strlen(cgroup);
	char comm[64];

	read_comm(p->pid, comm, sizeof(comm));
	if (text__starts(comm, "nvidia-") || text__starts(comm, "nv-hostengine"))
		return true;
	return p->parent == 1 && !*p->job && len >= strlen(service) &&
	       !strcmp(cgroup + len - strlen(service), service);
}

/*
 * True if the process that started this one has ended, so that the kernel gave it another parent.
 * session: its session ID. env: its initial environment, len bytes.
 *
 * A process has the session of the process that started it, unless it began its own. If its parent
 * has another session, it is not the process that started it. The session says nothing about a
 * process that began its own. But torchrun is the parent of such a process of torchrun: if its
 * parent is an init, torchrun has ended. The first process of a PID namespace (inner 1) always has
 * a parent outside, such as the container's runtime, and counts as not lost.
 */
static bool lost_parent(const struct holder_process *p, pid_t session, const char *env, size_t len)
{
	struct holder_process parent = { .pid = p->parent };
	pid_t parents_session;
	char text[4096];

	if (p->parent <= 0 || p->inner == 1)
		return false;
	if (session == p->pid)
		return variable(env, len, "TORCHELASTIC_RUN_ID") && is_init(p->parent);
	if (session <= 0 || io__text_of_process(p->parent, "stat", text, sizeof(text)) <= 0)
		return false;
	return holder_process__parse_stat(&parent, text, &parents_session) &&
	       parents_session != session;
}

/* ---- one process ---- */

void holder_process__read_nodes(struct holder_process *p)
{
	char path[32], link[32];
	struct dirent *e;
	struct statx st;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)p->pid);
	d = opendir(path);
	p->nodes_known = d || errno != EACCES;
	for (int i = 0; d && i < FILES_MAX && (e = readdir(d)); i++) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);

		/* A container's root lists descriptors, but may not trace the process. */
		if (n < 0 && errno == EACCES) {
			p->nodes_known = false;
			break;
		}
		if (n <= 0)
			continue;
		link[n] = '\0';
		/* Only a file with such a name is asked for its type, without asking a server of
		 * its file system, which may not answer. */
		if (!text__starts(link, "/dev/nvidia") ||
		    statx(dirfd(d), e->d_name, AT_STATX_DONT_SYNC, STATX_TYPE, &st))
			continue;
		if (S_ISCHR(st.stx_mode) && st.stx_rdev_major == NVIDIA_MAJOR &&
		    st.stx_rdev_minor < NODES_MAX)
			p->nodes |= UINT64_C(1) << st.stx_rdev_minor;
	}
	if (d)
		closedir(d);
}

bool holder_process__read_kernel(struct holder_process *p, struct holder_sleep *sleep)
{
	char text[4096], comm[64];
	pid_t session = 0;
	struct cgroup c;

	if (io__text_of_process(p->pid, "stat", text, sizeof(text)) <= 0 ||
	    !holder_process__parse_stat(p, text, &session))
		return false;
	read_status(p);
	read_comm(p->pid, comm, sizeof(comm));
	snprintf(p->command, sizeof(p->command), "[%s]", comm);
	read_comm(p->parent, p->parent_command, sizeof(p->parent_command));
	cgroup__read(p->pid, &c);
	container__show(&c, NULL, p->container, p->pod);
	holder_process__set_job(p, c.path, "", 0);
	p->threads_left = p->state == 'Z' && proc__lost_leader(p->pid);
	p->asleep_known = p->state != 'Z' && holder_sleep__of(sleep, p->pid, &p->asleep);
	p->parent_gone = lost_parent(p, session, "", 0) && !is_daemon(p, c.path);
	return true;
}

void holder_process__read_own(struct holder_process *p)
{
	char text[4096], *env = calloc(1, ENVIRON_MAX);
	struct holder_process now = *p;
	pid_t session = 0;
	struct cgroup c;
	ssize_t len;

	if (!env || io__text_of_process(p->pid, "stat", text, sizeof(text)) <= 0 ||
	    !holder_process__parse_stat(&now, text, &session)) {
		free(env);
		return;
	}
	len = io__text_of_process(p->pid, "environ", env, ENVIRON_MAX);
	len = len < 0 ? 0 : len;
	read_command(p);
	cgroup__read(p->pid, &c);
	holder_process__set_job(p, c.path, env, (size_t)len);
	p->parent_gone = lost_parent(p, session, env, (size_t)len) && !is_daemon(p, c.path);
	p->container_gone = container__is_gone(&c, "");
	set_names(p, &c);
	free(env);
}

void holder_process__read_name(struct holder_process *ret, pid_t pid)
{
	struct holder_process *p = ret;
	char text[4096], id[16];
	struct user user;
	struct cgroup c;
	pid_t session;

	*p = (struct holder_process){ .pid = pid, .state = 'X' };
	if (io__text_of_process(pid, "stat", text, sizeof(text)) <= 0 ||
	    !holder_process__parse_stat(p, text, &session))
		return;
	read_status(p);
	read_command(p);
	snprintf(id, sizeof(id), "%u", p->uid);
	put_clean(p->user, sizeof(p->user), user__in_passwd(&user, p->uid) ? id : user.name);
	cgroup__read(pid, &c);
	container__show(&c, NULL, p->container, p->pod);
}
