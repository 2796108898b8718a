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
#include "inspect/nvml/holder_sleep.h"
#include "inspect/proc.h"

#define NVIDIA_MAJOR 195      /* major number of /dev/nvidia<minor> */
#define NODES_MAX 64	      /* minor numbers above it are control nodes */
#define FILES_MAX 65536	      /* descriptors of a process that are looked at */
#define ENVIRON_MAX (1 << 18) /* bytes of an environment that are read */
#define PROCESSES_LOOKED 65536

const struct holder_process *holder_processes__find(const struct holder_processes *p, pid_t pid)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].pid == pid)
			return &p->v[i];
	return NULL;
}

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

/* Writes the command line without the folders of the program, or the name in brackets if there is
 * none, as of a zombie. */
static void read_command(struct holder_process *p)
{
	char text[4096], comm[64], *name = text, *slash;
	ssize_t len = io__text_of_process(p->pid, "cmdline", text, sizeof(text));

	if (len <= 0 || !*text) {
		read_comm(p->pid, comm, sizeof(comm));
		snprintf(p->command, sizeof(p->command), "[%s]", comm);
		return;
	}
	slash = strrchr(text, '/');
	if (*text == '/' && slash && slash[1])
		name = slash + 1;
	while (len && !text[len - 1])
		len--;
	for (ssize_t i = 0; i < len; i++)
		text[i] = text[i] ? text[i] : ' ';
	text__clean(p->command, sizeof(p->command), name, (size_t)(text + len - name));
}

static void set_user(const struct holder_processes *known, struct holder_process *p)
{
	struct user user;
	char id[16];

	/* A look-up may start a program, so do it once for each user. */
	for (size_t i = 0; i < known->n; i++) {
		if (known->v[i].uid != p->uid || known->v[i].state == 'X')
			continue;
		memcpy(p->user, known->v[i].user, sizeof(p->user));
		return;
	}
	snprintf(id, sizeof(id), "%u", p->uid);
	put_clean(p->user, sizeof(p->user), user__named(&user, id) ? id : user.name);
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

void holder_process__set_job(struct holder_process *p, const char *cgroup, const char *env,
			     size_t len)
{
	static const struct {
		const char *name, *variable;
	} jobs[] = { { "slurm", "SLURM_JOB_ID" },
		     { "ray", "RAY_JOB_ID" },
		     { "lsf", "LSB_JOBID" },
		     { "pbs", "PBS_JOBID" } };
	/* "/slurm/uid_1000/job_123/step_0", "/system.slice/slurmstepd.scope/job_123/step_0" */
	const char *slurm = strstr(cgroup, "/slurm"), *id;

	p->job[0] = '\0';
	slurm = slurm ? strstr(slurm, "/job_") : NULL;
	if (slurm && slurm[5] >= '0' && slurm[5] <= '9')
		add_job(p, "slurm", slurm + 5, strspn(slurm + 5, "0123456789"));
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		id = variable(env, len, jobs[i].variable);
		if (id && (i || !*p->job))
			add_job(p, jobs[i].name, id, strlen(id));
	}
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

/* A process has the session of the process that started it, unless it began its own. If its parent
 * has another session, the kernel gave it this parent because its own one ended. A process of
 * torchrun begins its own session, but its parent is torchrun. */
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

/* Marks the device nodes that a process has open. */
static void read_nodes(struct holder_process *p)
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

/* Reads who a process is. False: it ended. */
static bool read_who(const struct holder_processes *known, struct holder_sleep *sleep,
		     struct holder_process *p)
{
	char text[4096], *env = calloc(1, ENVIRON_MAX);
	struct cgroup c;
	pid_t session = 0;
	ssize_t len = 0;
	bool ok = env && io__text_of_process(p->pid, "stat", text, sizeof(text)) > 0 &&
		  holder_process__parse_stat(p, text, &session);

	if (ok) {
		len = io__text_of_process(p->pid, "environ", env, ENVIRON_MAX);
		len = len < 0 ? 0 : len;
		read_status(p);
		read_command(p);
		set_user(known, p);
		cgroup__read(p->pid, &c);
		p->container_gone = container__is_gone(&c, "");
		container__show(p->pid, &c, p->container, p->pod);
		holder_process__set_job(p, c.path, env, (size_t)len);
		read_comm(p->parent, p->parent_command, sizeof(p->parent_command));
		p->threads_left = p->state == 'Z' && proc__lost_leader(p->pid);
		p->asleep_known = p->state != 'Z' && holder_sleep__of(sleep, p->pid, &p->asleep);
		p->parent_gone = lost_parent(p, session, env, (size_t)len) && !is_daemon(p, c.path);
	}
	free(env);
	return ok;
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
	snprintf(id, sizeof(id), "%.12s", c.container);
	put_clean(p->container, sizeof(p->container), *c.name ? c.name : id);
	put_clean(p->pod, sizeof(p->pod), c.pod);
}

static struct holder_process *new_place(struct holder_processes *ps)
{
	if (ps->n < HOLDER_PROCESSES)
		return &ps->v[ps->n];
	ps->left_out++;
	return NULL;
}

/* ---- all processes ---- */

/* Adds a process that NVML lists. A PID that no process has belongs to one that ended, unless the
 * PID is of another namespace. */
static void add_listed(struct holder_processes *ps, struct holder_sleep *sleep, pid_t pid)
{
	struct holder_process *p;

	if (pid <= 0 || ps->own_namespace || holder_processes__find(ps, pid))
		return;
	p = new_place(ps);
	if (!p)
		return;
	*p = (struct holder_process){ .pid = pid };
	read_nodes(p);
	if (read_who(ps, sleep, p)) {
		ps->n++;
		return;
	}
	if (!kill(pid, 0) || errno != ESRCH)
		return; /* /proc hides it */
	*p = (struct holder_process){ .pid = pid, .state = 'X', .nodes_known = true };
	ps->n++;
}

/* False for threads of the kernel, and for zombies. */
static bool has_program(pid_t pid)
{
	char text[2];

	return io__text_of_process(pid, "cmdline", text, sizeof(text)) > 0;
}

/* Adds a process if it has a device node open. */
static void add_open(struct holder_processes *ps, struct holder_sleep *sleep, pid_t pid)
{
	struct holder_process q = { .pid = pid }, *p;

	if (holder_processes__find(ps, pid))
		return;
	read_nodes(&q);
	if (!q.nodes_known && has_program(pid))
		ps->closed++;
	if (!q.nodes)
		return;
	p = new_place(ps);
	if (p && read_who(ps, sleep, &q)) {
		*p = q;
		ps->n++;
	}
}

/* True if the kernel has a driver with device nodes /dev/nvidia<minor>. */
static bool has_driver_nodes(void)
{
	FILE *f = fopen("/proc/devices", "re");
	char line[128], name[64] = "";
	unsigned number = 0;
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%u %63s", &number, name) == 2 && number == NVIDIA_MAJOR &&
			text__starts(name, "nvidia");
	if (f)
		fclose(f);
	return found;
}

int holder_processes__read(struct holder_processes *ret, const struct gpus_answer *a)
{
	struct holder_sleep *sleep = holder_sleep__new();
	struct dirent *e;
	DIR *d;

	if (!sleep)
		return -ENOMEM;
	ret->n = ret->left_out = ret->closed = 0;
	ret->own_namespace = proc__pid_namespace() != 0;
	ret->has_nodes = has_driver_nodes();
	for (uint32_t i = 0; a && i < a->n; i++)
		add_listed(ret, sleep, (pid_t)a->process[i].pid);
	d = opendir("/proc");
	for (int i = 0; d && i < PROCESSES_LOOKED && (e = readdir(d)); i++)
		if (*e->d_name >= '1' && *e->d_name <= '9')
			add_open(ret, sleep, (pid_t)strtol(e->d_name, NULL, 10));
	if (d)
		closedir(d);
	holder_sleep__free(sleep);
	return 0;
}
