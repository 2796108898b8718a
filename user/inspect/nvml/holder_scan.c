/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * All processes that hold a GPU. A process's memory and files may never answer: those of its own
 * file system, or its arguments while it waits for a GPU that failed. So a helper process reads. If
 * it waits for too long, it is given up, and another one goes on behind that process.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user.h"
#include "inspect/gpu_holders.h"
#include "inspect/nvml/holder_process.h"
#include "inspect/nvml/holder_sleep.h"
#include "inspect/proc.h"

#define PROCESSES_LOOKED (1 << 22) /* the kernel's most */
#define WAITS_MOST 500		   /* ms for one process to answer */
#define GIVEN_UP_MOST 16	   /* then only the kernel is asked about processes */
#define GIVEN_UP_OF_USER 2	   /* the same for the processes of one user */

/* Shared with the helper. */
struct scan {
	const struct gpus_answer *answer; /* NULL: none */
	struct holder_processes ps;
	atomic_uint progress; /* processes that were begun */
	pid_t at;	      /* the process that it reads */
	uid_t user;	      /* its user */
	int err;	      /* -errno of a helper that returns 1 */
	size_t n_given_up;    /* processes that did not answer */
	struct {
		pid_t pid;
		uid_t user;
	} given_up[GIVEN_UP_MOST];
};

const struct holder_process *holder_processes__find(const struct holder_processes *p, pid_t pid)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].pid == pid)
			return &p->v[i];
	return NULL;
}

/* ---- the helper ---- */

static struct holder_process *new_place(struct holder_processes *ps)
{
	if (ps->n < HOLDER_PROCESSES)
		return &ps->v[ps->n];
	ps->left_out++;
	return NULL;
}

/* True if the process has a place already, or did not answer. */
static bool is_done(const struct scan *s, pid_t pid)
{
	for (size_t i = 0; i < s->n_given_up; i++)
		if (s->given_up[i].pid == pid)
			return true;
	return holder_processes__find(&s->ps, pid);
}

/* True if so many processes did not answer that only the kernel is asked about this user's. */
static bool is_spent(const struct scan *s, uid_t user)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_given_up; i++)
		n += s->given_up[i].user == user;
	return n >= GIVEN_UP_OF_USER || s->n_given_up == GIVEN_UP_MOST;
}

static void begin_process(struct scan *s, pid_t pid)
{
	s->at = pid;
	atomic_fetch_add(&s->progress, 1);
}

/* Adds a process, first with what the kernel knows of it. False: it ended. */
static bool add(struct scan *s, struct holder_sleep *sleep, struct holder_process *p)
{
	struct holder_process *place = new_place(&s->ps);

	if (!place)
		return true;
	if (!holder_process__read_kernel(p, sleep))
		return false;
	s->user = p->uid;
	p->unanswered = is_spent(s, p->uid);
	*place = *p;
	s->ps.n++;
	if (p->unanswered)
		return true;
	holder_process__read_own(p);
	*place = *p;
	return true;
}

/* Adds a process that NVML lists. A PID that no process has belongs to one that ended, unless the
 * PID is of another namespace. */
static void add_listed(struct scan *s, struct holder_sleep *sleep, pid_t pid)
{
	struct holder_process p = { .pid = pid };

	if (pid <= 0 || s->ps.own_namespace || is_done(s, pid))
		return;
	begin_process(s, pid);
	holder_process__read_nodes(&p);
	if (add(s, sleep, &p))
		return;
	if (!kill(pid, 0) || errno != ESRCH)
		return; /* /proc hides it */
	s->ps.v[s->ps.n++] = (struct holder_process){ .pid = pid,
						      .state = 'X',
						      .nodes_known = true };
}

/* False for threads of the kernel, and for zombies: they have no memory. */
static bool has_program(pid_t pid)
{
	char text[8192];

	return io__text_of_process(pid, "status", text, sizeof(text)) > 0 &&
	       strstr(text, "\nVmSize:");
}

/* Adds a process if it has a device node open. */
static void add_open(struct scan *s, struct holder_sleep *sleep, pid_t pid)
{
	struct holder_process p = { .pid = pid };

	if (is_done(s, pid))
		return;
	begin_process(s, pid);
	holder_process__read_nodes(&p);
	if (!p.nodes_known && has_program(pid))
		s->ps.closed++;
	if (p.nodes)
		add(s, sleep, &p);
}

/* Reads the processes that are not done, in a helper process. Returns its exit code: 0, or 1 with
 * s->err. */
static int run_helper(void *ctx)
{
	struct holder_sleep *sleep = holder_sleep__new();
	struct scan *s = ctx;
	struct dirent *e;
	DIR *d;

	s->err = sleep ? 0 : -ENOMEM;
	if (!sleep)
		return 1;
	for (uint32_t i = 0; s->answer && i < s->answer->n; i++)
		add_listed(s, sleep, (pid_t)s->answer->process[i].pid);
	d = opendir("/proc");
	if (!d)
		s->err = -errno;
	for (int i = 0; d && i < PROCESSES_LOOKED && (e = readdir(d));) {
		if (*e->d_name < '1' || *e->d_name > '9')
			continue;
		add_open(s, sleep, (pid_t)strtol(e->d_name, NULL, 10));
		i++;
	}
	if (d)
		closedir(d);
	holder_sleep__free(sleep);
	return s->err ? 1 : 0;
}

/* ---- this process ---- */

/* Notes that the process which the helper read last does not answer. */
static void give_up(struct scan *s)
{
	bool found = false;

	for (size_t i = 0; i < s->ps.n; i++) {
		if (s->ps.v[i].pid != s->at)
			continue;
		s->ps.v[i].unanswered = found = true;
	}
	s->given_up[s->n_given_up].pid = s->at;
	s->given_up[s->n_given_up++].user = s->user;
	s->ps.closed = s->ps.left_out = 0; /* the next helper counts them */
	s->ps.not_read += !found;
}

/* Runs helpers until one has read all. 0 or -errno. */
static int run(struct scan *s, struct subprocess_lost *lost)
{
	int err;

	while ((err = subprocess__try(run_helper, s, &s->progress, WAITS_MOST, lost)) ==
		       -ETIMEDOUT &&
	       s->n_given_up < GIVEN_UP_MOST)
		give_up(s);
	if (err == 1) /* run_helper() has set it */
		return s->err;
	return err > 0 ? -ENOMEM : err; /* > 1: the helper ended in another way */
}

/* Sets the name of a row's user. A look-up may start a program, so it is done once for each. */
static void set_user(struct holder_processes *ps, size_t i)
{
	struct holder_process *p = &ps->v[i];
	const char *name;
	struct user user;
	char id[16];

	for (size_t k = 0; k < i; k++) {
		if (ps->v[k].uid != p->uid || ps->v[k].state == 'X')
			continue;
		memcpy(p->user, ps->v[k].user, sizeof(p->user));
		return;
	}
	snprintf(id, sizeof(id), "%u", p->uid);
	name = user__named(&user, id) ? id : user.name;
	text__clean(p->user, sizeof(p->user), name, strlen(name));
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

int holder_processes__read(struct holder_processes *ret, const struct gpus_answer *a,
			   struct subprocess_lost *lost)
{
	struct scan *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			      -1, 0);
	int err;

	ret->n = 0;
	if (s == MAP_FAILED)
		return -ENOMEM;
	s->answer = a;
	s->ps.own_namespace = proc__pid_namespace() != 0;
	s->ps.has_nodes = has_driver_nodes();
	err = run(s, lost);
	if (!err)
		*ret = s->ps;
	munmap(s, sizeof(*s));
	for (size_t i = 0; i < ret->n; i++)
		if (ret->v[i].state != 'X')
			set_user(ret, i);
	return err;
}
