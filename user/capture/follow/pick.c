/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/pick.h"

#include <errno.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "inspect/container.h"
#include "inspect/proc.h"

#define CMDLINE_MAX 16384 /* bytes of a command line that are read */
#define ANCESTORS_MAX 64  /* processes above this one that are known */
/* ns: tolerance for the start of a process, which /proc has in ticks, mostly of 10 ms */
#define TICK 20000000ULL

/* A place that another process may take after its holder's end (--follow). */
struct pick_place {
	struct pick_process was; /* the first holder */
	pid_t holder;		 /* present process; 0: none */
	uint64_t since;		 /* CLOCK_BOOTTIME at the end of the last holder, ns */
};

struct pick {
	struct pick_args args;
	regex_t names[PICK_MAX];
	size_t n_names; /* number of compiled names */
	struct pick_place *place;
	size_t n_places;
	pid_t ancestor[ANCESTORS_MAX]; /* processes that have started this one, nearest first */
	size_t n_ancestors;
	struct stat exe; /* file of our own program */
};

/* ---- a process ---- */

/* Reads parent and start. 0, or -ESRCH: no such process, or it is ending. */
static int read_stat(pid_t pid, struct pick_process *process)
{
	unsigned long long start;
	char text[1024], *end;
	int parent;
	char state;

	if (io__text_of_process(pid, "stat", text, sizeof(text)) <= 0)
		return -ESRCH;
	end = strrchr(text, ')'); /* after the name, which may have any text */
	if (!end ||
	    sscanf(end + 1,
		   " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &state, &parent, &start) != 3 ||
	    state == 'Z' || state == 'X')
		return -ESRCH;
	process->parent = parent;
	process->started = start * (1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK));
	return 0;
}

/* Reads the users. The owner of /proc/PID does not say them: it is root for processes that are not
 * dumpable. 0 or -ESRCH. */
static int read_users(pid_t pid, struct pick_process *process)
{
	char text[4096];
	const char *at;

	if (io__text_of_process(pid, "status", text, sizeof(text)) <= 0)
		return -ESRCH;
	at = strstr(text, "\nUid:"); /* the name, which precedes the line, has no newline */
	return at && sscanf(at, " Uid: %u %u", &process->real_uid, &process->uid) == 2 ? 0 : -ESRCH;
}

int pick_process__read(pid_t pid, struct pick_process *ret)
{
	struct pick_process process = { .pid = pid };
	char buf[CMDLINE_MAX];
	ssize_t len;

	if (pid <= 0 || read_stat(pid, &process))
		return -ESRCH;
	len = io__text_of_process(pid, "cmdline", buf, sizeof(buf));
	if (len <= 0 || read_users(pid, &process))
		return -ESRCH; /* kernel threads have no command line */
	process.cmdline = malloc((size_t)len + 1);
	if (!process.cmdline)
		return -ENOMEM;
	memcpy(process.cmdline, buf, (size_t)len + 1);
	process.len = (size_t)len;
	len = io__text_of_process(pid, "comm", process.comm, sizeof(process.comm));
	if (len > 0)
		process.comm[strcspn(process.comm, "\n")] = '\0';
	cgroup__read(pid, &process.cgroup);
	*ret = process;
	return 0;
}

void pick_process__free(struct pick_process *process)
{
	free(process->cmdline);
	process->cmdline = NULL;
}

/* Writes the arguments, joined by spaces. */
static void join_words(const struct pick_process *process, char *buf, size_t size)
{
	size_t i, len = process->len < size - 1 ? process->len : size - 1;

	memcpy(buf, process->cmdline, len);
	while (len && !buf[len - 1])
		len--;
	for (i = 0; i < len; i++)
		buf[i] = buf[i] ? buf[i] : ' ';
	buf[len] = '\0';
}

/* Returns the part of the first word after its last "/". */
static char *skip_folders(char *word)
{
	char *ret = word;

	for (char *c = word; *c && *c != ' '; c++)
		ret = *c == '/' ? c + 1 : ret;
	return ret;
}

/* Removes the folders of the script's path, the first argument that is no option. */
static void drop_folders(char *words)
{
	char *at = strchr(words, ' '), *part;

	while (at && at[1] == '-')
		at = strchr(at + 1, ' ');
	if (!at)
		return;
	part = skip_folders(at + 1);
	memmove(at + 1, part, strlen(part) + 1);
}

char *pick_process__title(const struct pick_process *process, char *buf, size_t size)
{
	char words[CMDLINE_MAX + 1], *start;

	join_words(process, words, sizeof(words));
	/* Drops the interpreter's folders first, then the script's. */
	start = skip_folders(words);
	if (strlen(start) >= size)
		drop_folders(start);
	return text__clean(buf, size, start, strlen(start));
}

/* Finds the script in the words of a Python command: skips options of the interpreter that have no
 * value. Returns words if the program comes from an option such as -c. */
static char *find_script(char *words)
{
	char *at = strchr(words, ' ');

	while (at && at[1] == '-' && strcspn(at + 1, " ") == 2 && strchr("uBEIOPRSbdqsv", at[2]))
		at = strchr(at + 1, ' ');
	if (at && text__starts(at, " -m "))
		return at + 4;
	return at && at[1] && at[1] != '-' ? skip_folders(at + 1) : words;
}

char *pick_process__script(const struct pick_process *process, char *buf, size_t size)
{
	char words[CMDLINE_MAX + 1], *start;

	join_words(process, words, sizeof(words));
	start = skip_folders(words);
	if (text__starts(start, "python"))
		start = find_script(start);
	return text__clean(buf, size, start, strlen(start));
}

bool pick_process__is_python(const struct pick_process *process)
{
	const char *slash = strrchr(process->cmdline, '/');

	return text__starts(slash ? slash + 1 : process->cmdline, "python") ||
	       text__starts(process->comm, "python") || text__starts(process->comm, "pt_main");
}

/* ---- choice ---- */

bool pick_args__many(const struct pick_args *args)
{
	return args->n_pids > 1 || args->n_names || args->n_containers || args->n_pods ||
	       args->all || args->follow;
}

const char *pick__bad_pattern(const char *pattern)
{
	static char why[128];
	regex_t re;
	int err = regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB);

	if (!err) {
		regfree(&re);
		return NULL;
	}
	regerror(err, &re, why, sizeof(why));
	return why;
}

/* The parent of a process; 0: not known. */
static pid_t read_parent(pid_t pid)
{
	struct pick_process process = { 0 };

	return read_stat(pid, &process) ? 0 : process.parent;
}

struct pick *pick__new(const struct pick_args *args)
{
	struct pick *pick = calloc(1, sizeof(*pick));
	pid_t pid;

	if (!pick)
		return NULL;
	pick->args = *args;
	for (; pick->n_names < args->n_names; pick->n_names++) {
		if (regcomp(&pick->names[pick->n_names], args->names[pick->n_names],
			    REG_EXTENDED | REG_NOSUB)) {
			pick__free(pick);
			return NULL;
		}
	}
	for (pid = getppid(); pid > 1 && pick->n_ancestors < ANCESTORS_MAX; pid = read_parent(pid))
		pick->ancestor[pick->n_ancestors++] = pid;
	if (stat("/proc/self/exe", &pick->exe))
		memset(&pick->exe, 0, sizeof(pick->exe));
	return pick;
}

void pick__free(struct pick *pick)
{
	size_t i;

	if (!pick)
		return;
	for (i = 0; i < pick->n_names; i++)
		regfree(&pick->names[i]);
	for (i = 0; i < pick->n_places; i++)
		pick_process__free(&pick->place[i].was);
	free(pick->place);
	free(pick);
}

/* True for this program, another memtrace-bpf, and sudo. */
static bool is_ours(const struct pick *pick, const struct pick_process *process)
{
	char name[48];
	struct stat st;

	if (process->pid == getpid() || !strcmp(process->comm, "sudo"))
		return true;
	snprintf(name, sizeof(name), "/proc/%d/exe", (int)process->pid);
	return pick->exe.st_ino && !stat(name, &st) && st.st_ino == pick->exe.st_ino &&
	       st.st_dev == pick->exe.st_dev;
}

/* True if the process has started this one, directly or through others. */
static bool has_started_us(const struct pick *pick, pid_t pid)
{
	size_t i;

	for (i = 0; i < pick->n_ancestors && pick->ancestor[i] != pid; i++)
		;
	return i < pick->n_ancestors;
}

/* True if --name matches the command line or the name of the process. */
static bool has_name(struct pick *pick, const struct pick_process *process)
{
	char words[CMDLINE_MAX + 1];
	size_t i;

	if (!pick->n_names)
		return false;
	join_words(process, words, sizeof(words));
	for (i = 0; i < pick->n_names; i++) {
		if (!regexec(&pick->names[i], words, 0, NULL, 0) ||
		    !regexec(&pick->names[i], process->comm, 0, NULL, 0))
			return true;
	}
	return false;
}

static bool has_prefix(const char *text, const char *with)
{
	return text[0] && !strncmp(text, with, strlen(with));
}

/* True if the process is in a given container or pod, or if none was given. */
static bool is_there(const struct pick *pick, const struct pick_process *process)
{
	struct container_names names = { 0 };
	size_t i;

	if (!pick->args.n_containers && !pick->args.n_pods)
		return true;
	if (!process->cgroup.container[0] && !process->cgroup.name[0] && !process->cgroup.pod[0])
		return false;
	container__names(process->pid, &process->cgroup, "", &names);
	for (i = 0; i < pick->args.n_containers; i++) {
		if (has_prefix(process->cgroup.container, pick->args.containers[i]) ||
		    !strcmp(names.name, pick->args.containers[i]))
			return true;
	}
	for (i = 0; i < pick->args.n_pods; i++) {
		if (has_prefix(process->cgroup.pod, pick->args.pods[i]) ||
		    !strcmp(names.pod, pick->args.pods[i]))
			return true;
	}
	return false;
}

/* True if both have the same command line, user and container. */
static bool is_same_program(const struct pick_process *a, const struct pick_process *b)
{
	return a->uid == b->uid && a->len == b->len && !memcmp(a->cmdline, b->cmdline, a->len) &&
	       cgroup__same_place(&a->cgroup, &b->cgroup);
}

/* True if the process takes the place of an ended one (--follow). Workers of the ended one may look
 * alike, but have started before its end. */
static bool takes_place(const struct pick *pick, const struct pick_process *process)
{
	size_t i;

	for (i = 0; i < pick->n_places; i++) {
		const struct pick_place *at = &pick->place[i];

		if (!at->holder && process->started + TICK >= at->since &&
		    is_same_program(&at->was, process))
			return true;
	}
	return false;
}

static bool has_pid(const struct pick *pick, pid_t pid)
{
	for (size_t i = 0; i < pick->args.n_pids; i++) {
		if (pick->args.pids[i] == pid)
			return true;
	}
	return false;
}

bool pick__is_given(const struct pick *pick, const struct pick_process *process)
{
	return has_pid(pick, process->pid) || takes_place(pick, process);
}

enum pick_is pick__is(struct pick *pick, const struct pick_process *process)
{
	const struct pick_args *args = &pick->args;

	if (has_pid(pick, process->pid))
		return PICK_YES;
	if (is_ours(pick, process))
		return PICK_NO;
	if (takes_place(pick, process))
		return PICK_YES;
	if (!args->all && !args->n_names && !args->n_containers && !args->n_pods)
		return PICK_NO;
	if (args->n_names && !has_name(pick, process))
		return PICK_NO;
	if (!is_there(pick, process))
		return PICK_NO;
	if (!args->n_names)
		return PICK_IF_TORCH;
	/* --name often matches the shell or the launcher that has started memtrace-bpf. */
	return has_started_us(pick, process->pid) && !descendants__has_torch(process->pid)
		       ? PICK_NO
		       : PICK_YES;
}

/* ---- places ---- */

/* The place that the process holds, or a free one that it can take. NULL: none. */
static struct pick_place *find_place(struct pick *pick, const struct pick_process *process)
{
	size_t i;

	for (i = 0; i < pick->n_places; i++) {
		if ((!pick->place[i].holder || pick->place[i].holder == process->pid) &&
		    is_same_program(&pick->place[i].was, process))
			return &pick->place[i];
	}
	return NULL;
}

int pick__remember(struct pick *pick, const struct pick_process *process)
{
	struct pick_place *at = find_place(pick, process), *grown;

	if (!pick->args.follow || !pick->args.n_pids)
		return 0;
	if (at) {
		at->holder = process->pid;
		return 0;
	}
	grown = realloc(pick->place, (pick->n_places + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	pick->place = grown;
	at = &pick->place[pick->n_places];
	*at = (struct pick_place){ .was = *process, .holder = process->pid };
	at->was.cmdline = malloc(process->len + 1);
	if (!at->was.cmdline)
		return -ENOMEM;
	memcpy(at->was.cmdline, process->cmdline, process->len + 1);
	pick->n_places++;
	return 0;
}

void pick__ended(struct pick *pick, pid_t pid, uint64_t when)
{
	size_t i;

	for (i = 0; i < pick->args.n_pids; i++) {
		if (pick->args.pids[i] == pid)
			pick->args.pids[i] = 0; /* the PID may be given to another process */
	}
	for (i = 0; i < pick->n_places; i++) {
		if (pick->place[i].holder == pid) {
			pick->place[i].holder = 0;
			pick->place[i].since = when + clock__read(CLOCK_BOOTTIME) -
					       clock__read(CLOCK_MONOTONIC);
		}
	}
}

bool pick__open_ended(const struct pick *pick)
{
	return pick->args.all || pick->args.follow;
}

bool pick__needs_torch(const struct pick *pick)
{
	return !pick->args.n_names && !pick->args.n_pids;
}

bool pick__only_pids(const struct pick *pick)
{
	return pick->args.n_pids && !pick->args.n_names && !pick->args.all &&
	       !pick->args.n_containers && !pick->args.n_pods;
}

/* Appends formatted text; cuts it at size. */
__attribute__((format(printf, 3, 4))) static void append(char *buf, size_t size, const char *fmt,
							 ...)
{
	size_t len = strlen(buf);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + len, size - len, fmt, ap);
	va_end(ap);
}

char *pick__title(const struct pick *pick, char *buf, size_t size)
{
	const struct pick_args *args = &pick->args;
	size_t i;

	buf[0] = '\0';
	if (pick__only_pids(pick) && !pick__open_ended(pick)) {
		append(buf, size, "%s", args->n_pids > 1 ? "PIDs " : "PID ");
		for (i = 0; i < args->n_pids; i++)
			append(buf, size, "%s%d", i ? ", " : "", (int)args->pids[i]);
		return buf;
	}
	if (pick__only_pids(pick)) {
		append(buf, size, "process with the same command line, user and container");
		return buf;
	}
	append(buf, size, "process");
	for (i = 0; i < args->n_names; i++)
		append(buf, size, "%s'%s'", i ? " or " : " that matches ", args->names[i]);
	if (!args->n_names)
		append(buf, size, " with PyTorch");
	for (i = 0; i < args->n_containers; i++)
		append(buf, size, "%s%s", i ? ", " : " in container ", args->containers[i]);
	for (i = 0; i < args->n_pods; i++)
		append(buf, size, "%s%s", i ? ", " : " in pod ", args->pods[i]);
	return buf;
}
