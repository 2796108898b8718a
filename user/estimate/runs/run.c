/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/memory.h"
#include "base/subprocess.h"
#include "inspect/proc.h"

/* ---- repeated steps ---- */

#define DEVICES 64		/* devices whose steps are compared */
#define KEPT (2 * REPEAT_CYCLE) /* steps that are kept: each of a cycle twice */

/* Bytes of a device: the largest of a step, and those at its end. */
struct level {
	uint64_t peak_allocated, peak_reserved, allocated, reserved;
};

/* Counts within one step. */
struct number {
	uint64_t allocs, frees;
};

/* A step of the optimizer. */
struct step {
	uint64_t stack; /* of its EVENT_STEP: several optimizers have different ones */
	struct level of[DEVICES];
	struct number number[DEVICES];
};

struct repeat {
	struct device devices[DEVICES];
	struct map64 *blocks[DEVICES]; /* sizes by address, on a device whose allocator reports no
					  totals */
	size_t n;
	struct step now;
	struct step kept[KEPT];	     /* step i is at index i % KEPT, from 0 */
	struct growing {	     /* of step i, at index i % REPEAT_GROWN */
		uint64_t end, above; /* allocated bytes at the end, and of the peak above it */
	} growing[REPEAT_GROWN][DEVICES];
	uint64_t steps;
	bool too_many; /* true if there are too many devices to compare */
};

struct repeat *repeat__new(void)
{
	return calloc(1, sizeof(struct repeat));
}

void repeat__free(struct repeat *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		map64__free(r->blocks[i]);
	free(r);
}

/* Returns the device's index, or -1 if the table is full. */
static int find_device(struct repeat *r, struct device d)
{
	for (size_t i = 0; i < r->n; i++)
		if (device__same(r->devices[i], d))
			return (int)i;
	if (r->n == DEVICES)
		return -1;
	r->devices[r->n] = d;
	return (int)r->n++;
}

/* Counts the bytes of device i, whose allocator reports no totals. Returns 0 or -ENOMEM. */
static int count_block(struct repeat *r, int i, const struct event *e)
{
	struct level *l = &r->now.of[i];
	uint64_t known;

	if (!r->blocks[i])
		r->blocks[i] = map64__new();
	if (!r->blocks[i])
		return -ENOMEM;
	if (e->kind == EVENT_ALLOC) {
		l->allocated += e->size;
		return map64__set(r->blocks[i], e->addr, e->size);
	}
	if (map64__del(r->blocks[i], e->addr, &known))
		l->allocated -= known;
	return 0;
}

/* Takes an allocation or free into the current step. Returns 0 or -ENOMEM. */
static int add_block(struct repeat *r, const struct event *e)
{
	int i = find_device(r, e->device), err = 0;
	struct level *l = i < 0 ? NULL : &r->now.of[i];

	if (!l) {
		r->too_many = true;
		return 0;
	}
	if (e->totals) {
		l->allocated = e->allocated;
		l->reserved = e->reserved;
	} else {
		err = count_block(r, i, e);
	}
	r->now.number[i].allocs += e->kind == EVENT_ALLOC;
	r->now.number[i].frees += e->kind == EVENT_FREE;
	if (l->allocated > l->peak_allocated)
		l->peak_allocated = l->allocated;
	if (l->reserved > l->peak_reserved)
		l->peak_reserved = l->reserved;
	return err;
}

/* Keeps the current step and begins the next. stack: of its EVENT_STEP. */
static void end_step(struct repeat *r, uint32_t stack)
{
	r->now.stack = stack;
	for (size_t i = 0; i < r->n; i++) {
		const struct level *l = &r->now.of[i];

		r->growing[r->steps % REPEAT_GROWN][i] = (struct growing){
			.end = l->allocated, .above = l->peak_allocated - l->allocated
		};
	}
	r->kept[r->steps++ % KEPT] = r->now;
	for (size_t i = 0; i < r->n; i++) {
		r->now.of[i].peak_allocated = r->now.of[i].allocated;
		r->now.of[i].peak_reserved = r->now.of[i].reserved;
		r->now.number[i] = (struct number){ 0 };
	}
}

int repeat__event(struct repeat *r, const struct event *e)
{
	if (e->kind == EVENT_STEP)
		end_step(r, e->stack);
	else if ((e->kind == EVENT_ALLOC || e->kind == EVENT_FREE) && !device__on_host(e->device))
		return add_block(r, e);
	return 0;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* True if reserved bytes are equal, and allocated bytes to 1/REPEAT_CLOSE. A cached block may be up
 * to 1 MiB larger than requested and counts in full. Which one is used depends on the history, so
 * allocated bytes differ even between identical steps. *spread: raised to the difference of the
 * peaks, bytes. */
static bool levels_are_close(const struct level *a, const struct level *b, uint64_t *spread)
{
	uint64_t peak = difference(a->peak_allocated, b->peak_allocated);
	uint64_t end = difference(a->allocated, b->allocated);

	if (peak > *spread)
		*spread = peak;
	if (a->peak_reserved != b->peak_reserved || a->reserved != b->reserved)
		return false;
	return peak <= a->peak_allocated / REPEAT_CLOSE && end <= a->allocated / REPEAT_CLOSE;
}

/* True if both steps end at the same place, have the same numbers of blocks and close levels.
 * *spread: as in levels_are_close(). */
static bool steps_are_close(const struct repeat *r, const struct step *a, const struct step *b,
			    uint64_t *spread)
{
	if (a->stack != b->stack || memcmp(a->number, b->number, sizeof(a->number)) != 0)
		return false;
	for (size_t i = 0; i < r->n; i++)
		if (!levels_are_close(&a->of[i], &b->of[i], spread))
			return false;
	return true;
}

/* True if the last n steps did not change the number of blocks. This detects growth too small for
 * the bytes to show. */
static bool blocks_are_constant(const struct repeat *r, unsigned n)
{
	uint64_t more[DEVICES] = { 0 }; /* modulo 2^64 */

	for (unsigned i = 0; i < n; i++)
		for (size_t d = 0; d < r->n; d++) {
			const struct number *of = &r->kept[(r->steps - 1 - i) % KEPT].number[d];

			more[d] += of->allocs - of->frees;
		}
	for (size_t d = 0; d < r->n; d++)
		if (more[d])
			return false;
	return true;
}

/* True if each of the last n steps equals the step `cycle` before it. *spread: as in
 * levels_are_close(). */
static bool repeats(const struct repeat *r, unsigned cycle, unsigned n, uint64_t *spread)
{
	bool equal = true, near = true;

	*spread = 0;
	if (r->steps < n + cycle)
		return false;
	for (unsigned i = 0; i < n; i++) {
		const struct step *a = &r->kept[(r->steps - 1 - i) % KEPT],
				  *b = &r->kept[(r->steps - 1 - i - cycle) % KEPT];

		equal = equal && a->stack == b->stack && !memcmp(a->of, b->of, sizeof(a->of));
		near = near && steps_are_close(r, a, b, spread);
	}
	return equal || (near && blocks_are_constant(r, n));
}

bool repeat__found(const struct repeat *r, struct repeat_found *ret)
{
	uint64_t spread;

	if (r->too_many || !r->n)
		return false;
	for (unsigned cycle = 1; cycle <= REPEAT_CYCLE; cycle++) {
		unsigned n = cycle == 1 ? REPEAT_EQUAL - 1 : cycle;

		if (!repeats(r, cycle, n, &spread))
			continue;
		*ret = (struct repeat_found){ .first = r->steps - n - cycle + 1,
					      .last = r->steps,
					      .cycle = cycle,
					      .spread = spread };
		return true;
	}
	return false;
}

/* How the memory of steps goes on: it stays the same, grows evenly, or anything else. */
enum manner { STEADY, GROWS, OTHERWISE };

/* How the ends and peaks of a device's last steps go on. */
static enum manner manner_of(const struct repeat *r, size_t device)
{
	const struct growing *last = &r->growing[(r->steps - 1) % REPEAT_GROWN][device];
	uint64_t quarter[4] = { 0 }, most = 0, all = 0;

	for (uint64_t k = 1; k < REPEAT_GROWN; k++) {
		const struct growing *a = &r->growing[(r->steps + k - 1) % REPEAT_GROWN][device],
				     *b = &r->growing[(r->steps + k) % REPEAT_GROWN][device];
		uint64_t grown = b->end - a->end;

		if (b->end < a->end)
			return OTHERWISE;
		most = grown > most ? grown : most;
		quarter[(k - 1) * 4 / (REPEAT_GROWN - 1)] += grown;
		all += grown;
	}
	for (size_t k = 0; k < REPEAT_GROWN; k++)
		if (difference(r->growing[k][device].above, last->above) >
		    last->above / REPEAT_CLOSE + most)
			return OTHERWISE;
	for (int q = 0; q < 4; q++)
		/* Even growth: each quarter of the steps has about a quarter of it. */
		if (quarter[q] < all / 8 || quarter[q] > all / 2)
			return OTHERWISE;
	return all ? GROWS : STEADY;
}

bool repeat__grows(const struct repeat *r)
{
	bool grows = false;

	if (r->too_many || r->steps < REPEAT_GROWS)
		return false;
	for (size_t i = 0; i < r->n; i++) {
		enum manner m = manner_of(r, i);

		if (m == OTHERWISE)
			return false;
		grows |= m == GROWS;
	}
	return grows;
}

/* ---- processes of the script ---- */

#define MEMBERS 256	  /* descendants that are looked at */
#define TERM_WITHIN 3000  /* ms until SIGKILL */
#define KILL_WITHIN 10000 /* ms to wait after SIGKILL */
#define ROUNDS 5 /* rounds of killing, because a process may start another just before its end */
#define LOOK_EVERY 250000000ULL /* ns between checks of the host's memory */

/* Resident bytes of a process; 0: it has ended. */
static uint64_t rss_of(pid_t pid)
{
	char buf[128];
	uint64_t pages;

	if (io__text_of_process(pid, "statm", buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%*u %" SCNu64, &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Bytes of a process in which shared pages count in part; its resident bytes if that is not known. */
static uint64_t pss_of(pid_t pid)
{
	char buf[2048];
	uint64_t bytes;

	if (io__text_of_process(pid, "smaps_rollup", buf, sizeof(buf)) > 0 &&
	    memory__field(buf, "\nPss:", &bytes))
		return bytes;
	return rss_of(pid);
}

/* The sum of a figure over a process and n others. */
static uint64_t sum(uint64_t (*of)(pid_t), pid_t pid, const pid_t *pids, size_t n)
{
	uint64_t bytes = of(pid);

	for (size_t i = 0; i < n; i++)
		bytes += of(pids[i]);
	return bytes;
}

uint64_t estimate_run__memory(pid_t pid, uint64_t enough)
{
	pid_t pids[MEMBERS], parents[MEMBERS];
	size_t n = descendants__list(pid, pids, parents, MEMBERS);
	uint64_t bytes = sum(rss_of, pid, pids, n);

	return bytes > enough && n ? sum(pss_of, pid, pids, n) : bytes;
}

/* True if the process handles SIGTERM. Its handler could save a checkpoint, which is useless after
 * a run that computed nothing. */
static bool catches_term(pid_t pid)
{
	static const char caught[] = "\nSigCgt:"; /* a bit for each signal, in hexadecimal */
	char buf[4096], *at;

	io__text_of_process(pid, "status", buf, sizeof(buf));
	at = strstr(buf, caught);
	return at && (strtoull(at + strlen(caught), NULL, 16) >> (SIGTERM - 1) & 1);
}

/* True if the process has ended after at most ms milliseconds. */
static bool ended_within(int pidfd, int ms)
{
	struct pollfd fd = { .fd = pidfd, .events = POLLIN };

	return poll(&fd, 1, ms) > 0;
}

static void send(int pidfd, int number)
{
	syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0u);
}

/* Ends a process: by SIGTERM, or by SIGKILL if it has a handler for that or does not end. */
static void end_one(pid_t pid, int pidfd)
{
	if (!catches_term(pid)) {
		send(pidfd, SIGTERM);
		if (ended_within(pidfd, TERM_WITHIN))
			return;
	}
	send(pidfd, SIGKILL);
	ended_within(pidfd, KILL_WITHIN);
}

/* Kills the remaining descendants but `spare`, also those inherited from dead processes. Returns
 * how many there were. */
static unsigned end_others(pid_t spare)
{
	pid_t pids[MEMBERS], parents[MEMBERS], again[MEMBERS];
	size_t n = descendants__list(getpid(), pids, parents, MEMBERS), m;
	int fds[MEMBERS];
	unsigned ended = 0;

	for (size_t i = 0; i < n; i++)
		fds[i] = pids[i] == spare ? -1 : (int)syscall(SYS_pidfd_open, pids[i], 0u);
	/* A process that is still listed is the one that its descriptor refers to. */
	m = descendants__list(getpid(), again, parents, MEMBERS);
	for (size_t i = 0; i < n; i++) {
		bool there = false;

		for (size_t k = 0; k < m; k++)
			there |= again[k] == pids[i];
		if (fds[i] < 0 || !there || ended_within(fds[i], 0))
			continue;
		ended++;
		send(fds[i], SIGKILL);
		ended_within(fds[i], KILL_WITHIN);
	}
	for (size_t i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return ended;
}

unsigned estimate_run__end(pid_t pid, int pidfd, pid_t spare)
{
	unsigned ended = 0, now;

	end_one(pid, pidfd);
	for (int i = 0; i < ROUNDS; i++) {
		now = end_others(spare);
		ended += now;
		if (!now)
			break;
	}
	return ended;
}

/* ---- a run ---- */

/* State of the recording process. */
struct runner {
	struct run_command cmd; /* first member, as its callbacks receive it */
	const struct estimate_run_opts *opts;
	struct estimate_run *ret; /* memory shared with the parent process */
	struct repeat *repeat;
	struct map64 *changed; /* addresses where blocks came or went after the recording ended */
	bool over;	       /* true if the recording is complete */
	bool lost;	       /* true if events were lost after the recording ended */
	bool failed; /* true if there was no memory to compare steps; another bound ends the run */
	uint64_t start, checked_at;
};

/* A step has ended: ends the recording after --steps, or when steps repeat or grow evenly. */
static void on_step(struct runner *r)
{
	const struct estimate_run_opts *o = r->opts;
	uint64_t steps = r->repeat->steps;
	bool compares = !o->steps && !r->failed;
	uint64_t most = o->steps ? o->steps : UINT64_MAX;

	r->ret->steps = steps;
	if (compares && repeat__found(r->repeat, &r->ret->repeat)) {
		r->ret->end = RUN_REPEATED;
		r->over = true;
	} else if (compares && repeat__grows(r->repeat)) {
		r->ret->end = RUN_GROWS;
		r->over = true;
	} else if (steps >= most || (o->steps_at_most && steps >= o->steps_at_most)) {
		r->ret->end = RUN_STEPS;
		r->over = true;
	}
}

/* A request was refused: counts it, and ends the recording if it goes only until then. */
static void on_oom(struct runner *r)
{
	r->ret->ooms++;
	if (r->opts->until_oom) {
		r->ret->end = RUN_OOM;
		r->over = true;
	}
}

/* Chooses the events to record. The recording ends exactly with a step, even if the script runs on.
 * A final census follows; it keeps only tensors whose blocks did not change since that step. */
static bool keep_event(void *ctx, const struct event *e)
{
	struct runner *r = ctx;
	uint64_t one;

	if (!r->over) {
		r->failed |= repeat__event(r->repeat, e) != 0;
		if (e->kind == EVENT_STEP)
			on_step(r);
		else if (e->kind == EVENT_OOM)
			on_oom(r);
		return true;
	}
	switch (e->kind) {
	case EVENT_ALLOC:
	case EVENT_FREE:
		r->lost |= map64__set(r->changed, e->addr, 1) != 0;
		return false;
	case EVENT_LOST:
		r->lost = true;
		return false;
	case EVENT_TENSOR:
		return !r->lost && !map64__get(r->changed, e->addr, &one);
	case EVENT_CENSUS:
		return !r->lost;
	default:
		return false;
	}
}

/* Returns the name of a bound that was reached, or NULL. */
static const char *reached_bound(struct runner *r)
{
	const struct estimate_run_opts *o = r->opts;
	uint64_t now = clock__monotonic(), bytes;

	if (now - r->start >= o->max_time) {
		r->ret->end = RUN_TIME;
		return "duration";
	}
	if (now - r->checked_at < LOOK_EVERY)
		return NULL;
	r->checked_at = now;
	bytes = estimate_run__memory(child__pid(r->cmd.child), o->max_host_memory);
	if (bytes > r->ret->host_memory)
		r->ret->host_memory = bytes;
	if (bytes <= o->max_host_memory)
		return NULL;
	r->ret->end = RUN_HOST_MEMORY;
	return "host-memory";
}

/* For the sink of the recording: why it ends; NULL: it goes on. */
static const char *over(void *ctx)
{
	struct runner *r = ctx;

	return r->over ? "steps" : reached_bound(r);
}

/* For run_command.idle, before PyTorch is imported: ends the run at a bound. */
static void idle(struct run_command *cmd)
{
	if (reached_bound((struct runner *)cmd))
		cmd->recording.loop.quit = true;
}

/* Sends standard output and error to the end of a file, otherwise nowhere. */
static void make_quiet(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
}

/* Records the script and ends it with all its processes. Sets how it ended in *r->ret. Returns 0 or
 * an exit code, logged. */
static int record(struct runner *r)
{
	struct run_command *cmd = &r->cmd;
	int status = run_command__record(cmd);

	r->ret->attached = cmd->was_attached;
	if (!run_command__started(cmd))
		return status ? status : EXIT_FAILED;
	if (r->ret->end == RUN_ENDED && !run_command__has_ended(cmd)) {
		/* A signal ended the recording, or the process can no longer be recorded. */
		if (!status)
			r->ret->end = RUN_INTERRUPTED;
	}
	r->ret->at_end = run_command__has_ended(cmd);
	r->ret->killed_workers = estimate_run__end(child__pid(cmd->child), child__pidfd(cmd->child),
						   cmd->dryrun ? dryrun__keeper(cmd->dryrun) : 0) !=
				 0;
	r->ret->wait_status = child__wait(cmd->child);
	r->ret->time = clock__monotonic() - r->start;
	/* No error: the script never imported PyTorch, and the caller sees that from
	 * r->ret->attached == false. */
	if (status == EXIT_UNUSABLE && !cmd->was_attached)
		return EXIT_OK;
	return status;
}

/* For the recording process. */
struct run_ctx {
	const struct estimate_run_opts *opts;
	struct estimate_run *ret;
	const sigset_t *mask;
	int signals;
};

/* Body of the recording process. Returns its exit code. */
static int run(void *ctx)
{
	const struct run_ctx *c = ctx;
	const struct estimate_run_opts *o = c->opts;
	struct runner r = { .opts = o, .ret = c->ret, .start = clock__monotonic() };
	struct session_opts *session = &r.cmd.args.capture.session;
	int status;

	close(c->signals);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigprocmask(SIG_SETMASK, c->mask, NULL);
	if (o->quiet)
		make_quiet(o->quiet);
	if (log__level() > LOG_WARN)
		log__set_level(LOG_WARN);
	r.cmd.args = *o->args;
	r.cmd.args.dryrun.wanted = true;
	r.cmd.args.stdout_to_stderr = true;
	r.cmd.args.recording.output = o->path;
	session->no_census = session->no_autograd = session->no_modules = o->lean;
	/* Makes a replay under other settings exact. */
	session->requested_if_there = !o->lean;
	r.cmd.idle = idle;
	r.cmd.recording.calls.keep = keep_event;
	r.cmd.recording.calls.over = over;
	r.repeat = repeat__new();
	r.changed = map64__new();
	status = r.repeat && r.changed ? run_command__open(&r.cmd) : EXIT_FAILED;
	if (!status) {
		status = record(&r);
		run_command__close(&r.cmd);
	}
	repeat__free(r.repeat);
	map64__free(r.changed);
	return status;
}

/* Waits for the process. Ctrl-C reaches it through the terminal; other signals are forwarded. After
 * any signal no further run starts. Returns the exit code, EXIT_FAILED if a signal ended the
 * process. */
static int wait_for_child(struct subprocess *p, int signals, struct estimate_run *ret)
{
	struct pollfd fds[] = { { .fd = signals, .events = POLLIN },
				{ .fd = p->pidfd, .events = POLLIN } };
	int status;
	struct signalfd_siginfo si;
	bool signalled = false;

	while (!fds[1].revents) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		while (fds[0].revents && read(signals, &si, sizeof(si)) == sizeof(si)) {
			signalled = true;
			if (si.ssi_signo != SIGINT && si.ssi_signo != SIGQUIT)
				subprocess__signal(p, (int)si.ssi_signo);
		}
	}
	subprocess__wait(p, /*ms=*/-1, &status);
	if (signalled)
		ret->end = RUN_INTERRUPTED;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	log_err("signal %d (%s) ended the recording process", WTERMSIG(status),
		sigdescr_np(WTERMSIG(status)));
	return EXIT_FAILED;
}

int estimate_run(const struct estimate_run_opts *opts, struct estimate_run *ret)
{
	static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
	struct estimate_run *shared;
	int signals, status = EXIT_FAILED, err;
	struct subprocess process;
	sigset_t set, old;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(&set, numbers[i]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	sigprocmask(SIG_BLOCK, &set, &old);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	err = signals < 0 ? -errno : 0;
	if (!err)
		err = subprocess__start(
			&(struct subprocess_opts){
				.main = run,
				.ctx = &(struct run_ctx){ opts, shared, &old, signals },
				.in = SUBPROCESS_INHERIT,
				.out = SUBPROCESS_INHERIT,
				.err = SUBPROCESS_INHERIT,
				.keep_all_fds = true, /* it goes on as this program, with its log */
				.keep_signals = true, /* of whoever started us, for the script */
				.death_signal = SIGTERM },
			&process);
	if (err)
		log_err("cannot start a process: %s", strerror(-err));
	else
		status = wait_for_child(&process, signals, shared);
	if (signals >= 0)
		close(signals);
	sigprocmask(SIG_SETMASK, &old, NULL);
	*ret = *shared;
	munmap(shared, sizeof(*shared));
	return status;
}
