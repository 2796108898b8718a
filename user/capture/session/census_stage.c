/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/session/stages.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/autograd.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/decode/symbolizer.h"
#include "capture/target.h"
#include "inspect/census.h"
#include "inspect/hostmem.h"
#include "inspect/proc.h"
#include "inspect/pytensor.h"
#include "record/dict.h"
#include "record/stream.h"

#define FIRST_WITHIN 5000000000ULL /* ns that the reading at attach may take */
#define LAST_WITHIN 5000000000ULL  /* ns that the last reading may take; usually it is 0.2 s */
#define OTHER_WITHIN 1000000000ULL /* ns that any other reading may take */
#define DRY_WITHIN 20000000000ULL  /* ns that a reading may take in a dry run */
#define EVERY 10000000000ULL	   /* ns between two readings, at least */
#define UNCHANGED_MAX 3		   /* times that the pause between two readings doubles */
#define EARLY 1000000000ULL	   /* ns until the first reading of a process that may be brief */
#define SPREAD 8		   /* different times of the first such reading, by process */
#define HOST_SHARE 1000		   /* readings of host memory take at most 1/1000 of the time */
#define SHARE 50		   /* readings of tensors take at most 1/50 of the time */
#define OPEN_EVERY 250000000ULL	   /* ns between looks for torch or a first tensor */
#define SEARCHES_MAX 8		   /* searches for the garbage collector's lists; pauses double */
#define TORN_FIRST 8		   /* torn first readings that are repeated soon */
/* The last steps are near when they are expected in twice the time of the last reading plus these
 * ns. */
#define NEAR_END 100000000ULL
#define EARLY_STEPS 2 /* first steps that readings follow at once: they make gradients and state */
#define OOMS_READ 3   /* out-of-memory errors that readings follow at once */
#define STEPS_ALL 4   /* steps before the first reading of all tensors in a dry run */
#define FREED_MAX (1u << 20) /* addresses freed during one reading that are kept */

/*
 * Memory of the tensors to which the last reading gave a role. An object may end and another take
 * its address, so a role is valid only until the memory is freed. The maps are sets of addresses.
 */
struct roles {
	struct map64 *addrs;  /* addresses of these tensors */
	struct map64 *gone;   /* addresses freed since the last reading began */
	struct map64 *during; /* addresses freed since the current reading began; NULL: none runs */
	bool lost;	      /* events, maybe frees, were lost since the last reading began */
	bool lost_during;     /* events, maybe frees, were lost since the current reading began */
	bool too_many;	      /* during is full */
};

/* A reading. Its thread owns all fields until done is set; state, err and why until tensors_done. */
struct job {
	struct census *census;
	struct census_opts opts;
	struct census_state state;
	const char *why;
	int err;
	struct hostmem *host; /* NULL: read no host memory */
	struct host_ledger ledger;
	bool has_ledger;
	uint64_t tensors_took;	  /* CPU time for the tensors, ns */
	uint64_t took;		  /* CPU time for tensors and host memory, ns */
	atomic_bool cancel;	  /* the session asks the thread to end */
	atomic_bool tensors_done; /* the tensors are read; host memory may follow */
	atomic_bool done;
};

struct census_stage {
	struct sink sink; /* first: the sink is the stage */
	struct sink *next;
	struct decoder *decoder;
	struct census *census; /* NULL: not opened */
	struct job job;
	pthread_t thread;
	bool running;		  /* a reading is under way */
	bool is_last;		  /* the reading is the last one: its ledger is taken separately */
	bool only_ledger;	  /* the last reading is taken, except for its ledger */
	bool first;		  /* the reading is the one at attach */
	struct census_state last; /* parameters of the last reading that succeeded */
	struct roles roles;
	struct job_steps *job_steps;
	uint64_t next_read;	   /* earliest next reading, ns since start */
	uint64_t steps_at_reading; /* optimizer steps that had ended at the last reading */
	uint64_t next_all;	   /* when to read all tensors again, ns since start */
	uint64_t next_all_steps;   /* the same in a dry run that has steps: number of steps */
	uint64_t took;		   /* length of the last reading, ns */
	unsigned torn_first;	   /* readings that were torn before any found a lasting tensor */
	struct hostmem *host;	   /* NULL: not opened */
	/* Earliest next reading of host memory, which needs all tensors, ns since start: readings
	 * take a thousandth of the time in the long run, apart from those that come with others. */
	uint64_t next_host;
	bool maybe_brief;     /* a child process, which may end before a reading after EVERY */
	bool host_only;	      /* Python's objects cannot be read, but host memory can */
	bool late;	      /* the reading near the last of the requested steps was begun */
	bool ran_out;	      /* an out-of-memory error came since the last reading began */
	unsigned ooms_read;   /* readings that followed an out-of-memory error */
	unsigned readings;    /* readings taken */
	unsigned torn;	      /* readings during which memory changed too much */
	unsigned holders_cut; /* readings whose holders are incomplete */
	uint64_t lasting;     /* census_state__hash_lasting() of the last reading */
	unsigned unchanged;   /* readings in a row with the same `lasting` */
	bool have_last;	      /* `last` is set: a reading succeeded */
	bool first_over;      /* the reading at attach was made or is not needed */
	bool refused;	      /* this Python cannot be read, or the last reading was begun */
	unsigned searches;    /* vain searches for the lists of the garbage collector */
	const char *problem;  /* why the last reading failed, as logged */
};

/* Lists the storages of tensors on the CPU, for the ledger. The caller frees them. NULL: no memory.
 * *n: their number. */
static struct host_storage *host_storages(const struct census_state *census, size_t *n)
{
	struct host_storage *storages = calloc(census->ntensors + 1, sizeof(*storages));

	*n = 0;
	for (size_t i = 0; storages && i < census->ntensors; i++)
		if (census->tensors[i].device_type == DEVICE_CPU)
			storages[(*n)++] = (struct host_storage){ census->tensors[i].addr,
								  census->tensors[i].size };
	return storages;
}

static bool is_cancelled(void *ctx)
{
	struct job *j = ctx;

	return atomic_load(&j->cancel);
}

/* The thread of a reading: reads the tensors, and then host memory, if wanted. */
static void *run_reading(void *ctx)
{
	struct job *job = ctx;
	struct host_opts host_opts = { .storages_known = job->census,
				       .cancelled = is_cancelled,
				       .ctx = job };
	struct host_storage *storages = NULL;
	uint64_t began = clock__read(CLOCK_THREAD_CPUTIME_ID);
	bool wants_host = job->host;

	if (job->census)
		job->err = census__read(job->census, &job->opts, &job->state, &job->why);
	job->tensors_took = clock__read(CLOCK_THREAD_CPUTIME_ID) - began;
	wants_host = wants_host && !job->err && !atomic_load(&job->cancel);
	if (wants_host)
		storages = host_storages(&job->state, &host_opts.n);
	host_opts.storages = storages;
	atomic_store(&job->tensors_done, true);
	if (storages)
		job->has_ledger = !hostmem__read(job->host, &host_opts, &job->ledger);
	free(storages);
	job->took = clock__read(CLOCK_THREAD_CPUTIME_ID) - began;
	atomic_store(&job->done, true);
	return NULL;
}

static void roles__free(struct roles *roles)
{
	map64__free(roles->addrs);
	map64__free(roles->gone);
	map64__free(roles->during);
	memset(roles, 0, sizeof(*roles));
}

/* A reading begins. 0 or -ENOMEM. */
static int roles__begin(struct roles *roles)
{
	map64__free(roles->during);
	roles->during = map64__new();
	roles->lost_during = roles->too_many = false;
	return roles->during ? 0 : -ENOMEM;
}

/* Ends the current reading without a result. */
static void roles__cancel(struct roles *roles)
{
	map64__free(roles->during);
	roles->during = NULL;
}

/* True if the role that the last reading gave to this memory is still valid. */
static bool roles__has(const struct roles *roles, uint64_t addr)
{
	uint64_t unused;

	return roles->addrs && roles->gone && !roles->lost &&
	       map64__get(roles->addrs, addr, &unused) && !map64__get(roles->gone, addr, &unused);
}

/* The current reading becomes the last one. If it lacks objects, roles from the one before stay. 0
 * or -ENOMEM. */
static int roles__take(struct roles *roles, const struct census_state *census)
{
	struct map64 *addrs = map64__new();
	uint64_t addr, unused;
	size_t pos = 0;
	int err = addrs ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < census->ntensors; i++)
		if (census->tensors[i].kind != CENSUS_OTHER)
			err = map64__set(addrs, census->tensors[i].addr, 1);
	while (!err && census->torn_lists && roles->addrs &&
	       map64__next(roles->addrs, &pos, &addr, &unused)) {
		if (roles__has(roles, addr))
			err = map64__set(addrs, addr, 1);
	}
	map64__free(roles->addrs);
	map64__free(roles->gone);
	roles->addrs = addrs;
	roles->gone = roles->during;
	roles->lost = roles->lost_during;
	roles->during = NULL;
	return err;
}

/* Notes a free, or lost events, which may contain frees. 0 or -ENOMEM. */
static int roles__note(struct roles *roles, const struct event *event)
{
	uint64_t unused;
	int err = 0;

	if (event->kind == EVENT_LOST)
		roles->lost = roles->lost_during = true;
	if (event->kind != EVENT_FREE)
		return 0;
	if (roles->during && map64__count(roles->during) >= FREED_MAX)
		roles->lost_during = roles->too_many = true;
	else if (roles->during)
		err = map64__set(roles->during, event->addr, 1);
	if (!err && roles->addrs && roles->gone && map64__get(roles->addrs, event->addr, &unused))
		err = map64__set(roles->gone, event->addr, 1);
	return err;
}

/* True if this memory was not freed since the current reading began: the block that it saw is
 * live. */
static bool roles__stayed(const struct roles *roles, uint64_t addr)
{
	uint64_t unused;

	return roles->during && !roles->too_many && !map64__get(roles->during, addr, &unused);
}

/* True if the tensor is still the parameter that was read. */
static bool roles__holds(const struct roles *roles, const struct census_tensor *tensor)
{
	return tensor->allocated && roles__has(roles, tensor->addr);
}

static enum category category_of(enum census_kind kind)
{
	switch (kind) {
	case CENSUS_PARAMETER:
		return CATEGORY_PARAMETER;
	case CENSUS_BUFFER:
		return CATEGORY_BUFFER;
	case CENSUS_GRADIENT:
		return CATEGORY_GRADIENT;
	case CENSUS_OPTIMIZER:
		return CATEGORY_OPTIMIZER_STATE;
	case CENSUS_KV_CACHE:
		return CATEGORY_KV_CACHE;
	case CENSUS_ACTIVATION:
		return CATEGORY_ACTIVATION;
	default:
		return CATEGORY_UNKNOWN;
	}
}

/* Gets the dictionary numbers of a tensor's name and module (0: none). 0 or -ENOMEM. */
static int intern_names(struct decoder *decoder, const struct census_tensor *tensor, uint32_t *name,
			uint32_t *module)
{
	struct dict_module module_names;

	*module = 0;
	*name = decoder__string(decoder, tensor->about->name);
	if (*name == UINT32_MAX)
		return -ENOMEM;
	if (!*tensor->about->cls)
		return 0;
	module_names.name = decoder__string(decoder, tensor->about->module);
	module_names.cls = decoder__string(decoder, tensor->about->cls);
	module_names.root = decoder__string(decoder, tensor->about->root);
	if (module_names.name == UINT32_MAX || module_names.cls == UINT32_MAX ||
	    module_names.root == UINT32_MAX)
		return -ENOMEM;
	*module = symbolizer__number(decoder->names, dict__module(decoder->dict, module_names));
	return *module == UINT32_MAX ? -ENOMEM : 0;
}

/* True if the recording has the memory of this type of device. */
static bool is_traced(uint8_t device_type)
{
	return device_type == DEVICE_CPU || device_type == DEVICE_CUDA;
}

/* True if the tensor's block was there before attach, so that the recording has no event of it.
 * Memory of other allocators does not count: the stream never sees its end. */
static bool was_before_attach(const struct census_stage *stage, const struct census_tensor *tensor)
{
	return stage->first && tensor->allocated && roles__stayed(&stage->roles, tensor->addr);
}

/* Encodes the size of a dtype's elements for TENSOR_ITEM: 1 for 8 bits, 2 for 16, up to 5 for 128;
 * 0: another size. */
static uint8_t item_code(uint8_t dtype)
{
	unsigned bits = pytensor__dtype_bits(dtype);

	for (uint8_t i = 1; i <= 5; i++)
		if (bits == 8U << (i - 1))
			return i;
	return 0;
}

/* Emits the role and the name of a tensor. 0, -ENOMEM or the sink's error. */
static int emit_tensor(struct census_stage *stage, const struct census_tensor *tensor,
		       uint64_t time)
{
	struct event event = {
		.kind = EVENT_TENSOR,
		.device = { tensor->device_type, tensor->device_index },
		.time = time,
		.addr = tensor->addr,
		.size = tensor->size,
		.category = category_of(tensor->kind),
		.flags = was_before_attach(stage, tensor) ? CENSUS_FIRST : 0,
	};
	int err;

	if (!*tensor->about->name && tensor->kind == CENSUS_OTHER && !event.flags)
		return 0; /* says only that there is a tensor */
	if (!decoder__stayed(stage->decoder, tensor->addr))
		return 0; /* the tensor's memory was freed meanwhile */
	/* The module or optimizer that holds it may be among the objects that this reading lacks. */
	if (stage->job.state.torn_lists && tensor->kind == CENSUS_OTHER &&
	    roles__has(&stage->roles, tensor->addr))
		return 0;
	event.flags |= item_code(tensor->about->dtype);
	err = intern_names(stage->decoder, tensor, &event.name, &event.module);
	return err ? err : stage->next->event(stage->next, &event);
}

static int pass_on(void *ctx, const struct event *event)
{
	struct census_stage *stage = ctx;

	return stage->next->event(stage->next, event);
}

/* After the requested steps (d->cut), a reading tells only of blocks that stayed since: its time is
 * the cut's. */
static uint64_t limit_to_cut(const struct census_stage *stage, uint64_t time)
{
	return stage->decoder->cut && time > stage->decoder->cut ? stage->decoder->cut : time;
}

/* True if host memory is read. After the requested steps only its sums count: blocks of host memory
 * that came later are not recorded, and rows by line would not add up to the sums. */
static bool reads_host(const struct census_stage *stage)
{
	return !stage->decoder->cut || !stage->decoder->host;
}

/* Emits all tensors of a reading, then for each device their sum. 0, -ENOMEM or the sink's
 * error. */
static int emit_reading(struct census_stage *stage, const struct census_state *census)
{
	uint64_t begin = limit_to_cut(stage, decoder__since(stage->decoder, census->begin));
	uint64_t end = limit_to_cut(stage, decoder__now(stage->decoder));
	bool torn = census->torn || census->torn_lists;
	bool all_known = !stage->job.opts.named_only && !torn && !census->ended &&
			 !census->unreadable;
	int err = 0;

	for (size_t i = 0; !err && i < census->ntensors; i++)
		if (is_traced(census->tensors[i].device_type))
			err = emit_tensor(stage, &census->tensors[i], begin);
	for (size_t i = 0; !err && i < census->ndevices; i++) {
		const struct census_device *device = &census->devices[i];
		struct event event = {
			.kind = EVENT_CENSUS,
			.device = { device->type, device->index },
			.time = end,
		};

		if (stage->first)
			event.flags |= CENSUS_FIRST;
		if (torn)
			event.flags |= CENSUS_TORN;
		for (size_t k = 0; k < CENSUS_KINDS; k++)
			event.size += device->bytes[k];
		if (device->type == DEVICE_CUDA && all_known && !stage->decoder->cut)
			cuda_calls__tensors(stage->decoder, device->index, event.size);
		if (is_traced(device->type))
			err = stage->next->event(stage->next, &event);
	}
	return err;
}

/* Logs why a reading failed, unless the last one failed for the same reason. */
static void log_failure(struct census_stage *stage, int err, const char *why)
{
	if (stage->problem == why)
		return;
	stage->problem = why;
	log_debug("the roles of blocks were not read: %s (%s)", why, strerror(-err));
}

/* Says why tensors have no names, until a reading gives them some. */
static void say_problem(struct census_stage *stage, int err, const char *why)
{
	if (!stage->have_last && why != census__no_tensor &&
	    (err == -EAGAIN || err == -ENOTSUP || err == -ETIME))
		facts__setf(stage->decoder->facts, "census_problem", "%s, so tensors have no names",
			    why);
}

/* Clears the fact about why there was no census. */
static void end_problem(struct census_stage *stage)
{
	if (facts__get(stage->decoder->facts, "census_problem"))
		facts__set(stage->decoder->facts, "census_problem", "");
}

/* Sets the facts about the number of the first step, if they changed: optimizers that continue a
 * run do not begin at 0. 0 or -ENOMEM. */
static int set_first_step(struct census_stage *stage)
{
	const char *why, *old_number = facts__get(stage->decoder->facts, "job_step"),
			 *old_why = facts__get(stage->decoder->facts, "job_step_unknown");
	char number[24] = "";
	uint64_t first_step;
	int err = 0;

	if (job_steps__first(stage->job_steps, &first_step, &why))
		snprintf(number, sizeof(number), "%" PRIu64, first_step);
	if (!old_number || strcmp(old_number, number) != 0)
		err = facts__set(stage->decoder->facts, "job_step", number);
	if (!err && (!old_why || strcmp(old_why, why) != 0))
		err = facts__set(stage->decoder->facts, "job_step_unknown", why);
	return err == -ENOMEM ? err : 0;
}

/* Takes the step counts of optimizers that a reading found. All records up to its end have come,
 * and so all ends of steps: counts taken before, and these, can be compared with them at once. 0 or
 * -ENOMEM. */
static int take_counts(struct census_stage *stage, struct census_state *st)
{
	for (size_t i = 0; i < st->ncounts; i++) {
		st->counts[i].begin = decoder__since(stage->decoder, st->counts[i].begin);
		st->counts[i].end = decoder__since(stage->decoder, st->counts[i].end);
	}
	if (facts__setf(stage->decoder->facts, "optimizers", "%zu", st->ncounts) == -ENOMEM)
		return -ENOMEM;
	job_steps__settle(stage->job_steps); /* the readings before */
	job_steps__read(stage->job_steps, st->counts, st->ncounts);
	job_steps__settle(stage->job_steps);
	return set_first_step(stage);
}

static uint64_t decoder_now(void *ctx)
{
	return decoder__now(ctx);
}

int census_stage__look(struct census_stage *stage, uint64_t now)
{
	if (!job_steps__is_due(stage->job_steps, now))
		return 0;
	job_steps__read_again(stage->job_steps, stage->decoder->target->proc, decoder_now,
			      stage->decoder);
	return set_first_step(stage);
}

bool census_stage__look_last(struct census_stage *stage)
{
	if (!job_steps__has_few(stage->job_steps) || !proc__alive(stage->decoder->target->proc))
		return false;
	job_steps__read_again(stage->job_steps, stage->decoder->target->proc, decoder_now,
			      stage->decoder);
	return true;
}

int census_stage__end_looks(struct census_stage *stage)
{
	job_steps__settle(stage->job_steps);
	return set_first_step(stage);
}

void census_stage__lost_steps(struct census_stage *stage)
{
	job_steps__lost(stage->job_steps);
}

/* Starts the thread of a reading. all: read all tensors and host memory, otherwise only named
 * tensors. limit: ns. */
static void begin_reading(struct census_stage *stage, bool all, uint64_t limit)
{
	sigset_t all_signals, old_mask;
	int err;

	memset(&stage->job, 0, sizeof(stage->job));
	stage->job.census = stage->census;
	stage->job.opts = (struct census_opts){ .named_only = !all,
						.memory = all && stage->decoder->host &&
							  !stage->decoder->cut,
						.limit_ns = limit,
						.cancelled = is_cancelled,
						.ctx = &stage->job,
						.clock = clock__kernel };
	if (stage->decoder->opts->dry_run)
		stage->job.opts.limit_ns = DRY_WITHIN;
	if (stage->decoder->opts->inside)
		stage->job.opts.clock = clock__monotonic;
	stage->job.why = "";
	if (all && !stage->host)
		stage->host = hostmem__new(stage->decoder->target->proc,
					   stage->decoder->target->python);
	stage->job.host = all && reads_host(stage) ? stage->host : NULL;
	if (stage->job.opts.memory)
		host_memory__begin_held(stage->decoder->host);
	stage->first = !stage->first_over;
	stage->steps_at_reading = stage->decoder->steps;
	/* The new thread blocks all signals: they are for the thread that waits for them. */
	sigfillset(&all_signals);
	pthread_sigmask(SIG_SETMASK, &all_signals, &old_mask);
	err = -roles__begin(&stage->roles);
	if (!err)
		err = pthread_create(&stage->thread, NULL, run_reading, &stage->job);
	pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
	stage->running = !err;
	if (err) {
		roles__cancel(&stage->roles);
		log_failure(stage, -err, "cannot start a thread");
		stage->next_read = decoder__now(stage->decoder) + EVERY;
	}
}

/* True if there is something to read: Python, and torch with a tensor in it. now: UINT64_MAX at the
 * end, when nothing can be put off. */
static bool is_ready(struct census_stage *stage, uint64_t now)
{
	const char *why = "";

	if (stage->refused || !stage->decoder->target->python)
		return false;
	if (stage->census)
		return true;
	if (now < stage->next_read)
		return false;
	stage->census = census__open(stage->decoder->target->python, !stage->decoder->no_torch, 0,
				     &why);
	if (stage->census)
		return true;
	stage->next_read = now + OPEN_EVERY;
	if (errno == ENOENT)
		return false; /* torch is not imported yet */
	if (errno == EAGAIN && stage->searches < SEARCHES_MAX && now != UINT64_MAX) {
		stage->next_read = now + (OPEN_EVERY << stage->searches++);
		return false;
	}
	/* A Python without lists of objects, or whose lists are not found: no later attempt will
	 * succeed, but host memory can be read. After other errors it tries again. */
	stage->refused = stage->host_only = errno == ENOTSUP || errno == EAGAIN;
	log_failure(stage, -errno, why);
	if (stage->refused)
		facts__set(stage->decoder->facts, "census_problem", why);
	return false;
}

/* True in the last of the requested steps, or earlier if steps are short: after that step the
 * program may end, without time for the last reading. The time left is estimated from the mean
 * length of steps. */
static bool is_near_end(const struct census_stage *stage, uint64_t now)
{
	uint64_t wanted_steps = stage->decoder->opts->steps,
		 steps_done = decoder__steps(stage->decoder);

	return stage->first_over && !stage->late && steps_done && steps_done < wanted_steps &&
	       (wanted_steps - steps_done - 1) * (now / steps_done) < 2 * stage->took + NEAR_END;
}

/* True if it is time to read all tensors, which says what holds memory that grows. The time until
 * the next reading doubles with each one. So if a program ends by itself, which leaves no time for
 * a last reading, the latest one is from the second half of its run. In a dry run, where thousands
 * of steps may take a second, the number of steps doubles instead. */
static bool is_all_due(const struct census_stage *stage, uint64_t now)
{
	return stage->decoder->opts->dry_run && stage->decoder->steps
		       ? stage->decoder->steps >= stage->next_all_steps
		       : now >= stage->next_all;
}

/* True if a step has ended since the last reading, and fewer than EARLY_STEPS had ended then. */
static bool is_early_due(const struct census_stage *stage)
{
	return stage->decoder->steps != stage->steps_at_reading &&
	       stage->steps_at_reading < EARLY_STEPS;
}

/* True if a reading should follow an out-of-memory error at once: the program may end soon, or try
 * something else. */
static bool is_oom_due(const struct census_stage *stage, uint64_t now)
{
	return stage->ran_out && (stage->ooms_read < OOMS_READ || now >= stage->next_read);
}

uint64_t census_stage__pause(unsigned unchanged, uint64_t took)
{
	uint64_t least_pause = EVERY << (unchanged < UNCHANGED_MAX ? unchanged : UNCHANGED_MAX);

	return took * SHARE > least_pause ? took * SHARE : least_pause;
}

/* Time until the next reading, ns. took: CPU time of the last one. A process that may be brief is
 * read at times that double: whenever it ends, the last reading is of its second half. A torn first
 * reading is repeated soon. So is each one in a dry run without steps, whose time is no matter: a
 * server takes most of its memory late, when its weights are loaded. */
static uint64_t pause_after(const struct census_stage *stage, uint64_t now, uint64_t took)
{
	uint64_t least_pause = now > EARLY ? now : EARLY;
	bool torn_first = stage->job.state.torn_lists && !stage->lasting &&
			  stage->torn_first <= TORN_FIRST;

	if (torn_first || (stage->decoder->opts->dry_run && !stage->decoder->steps))
		return 4 * took > EARLY ? 4 * took : EARLY;
	if (!stage->maybe_brief || now >= EVERY)
		return census_stage__pause(stage->unchanged, took);
	return took * SHARE > least_pause ? took * SHARE : least_pause;
}

/* True for a DataLoader's worker. There may be many, and they seldom hold weights. */
static bool is_data_worker(const struct census_stage *stage)
{
	const struct proc *proc = stage->decoder->target->proc;
	char comm[64];

	return !proc__thread_comm(proc, proc__pid(proc), comm, sizeof(comm)) &&
	       !strcmp(comm, "pt_data_worker");
}

static bool is_reading_due(const struct census_stage *stage, uint64_t now)
{
	return now >= stage->next_read ||
	       (stage->decoder->opts->dry_run && is_all_due(stage, now)) || is_early_due(stage) ||
	       is_oom_due(stage, now);
}

void census_stage__begin(struct census_stage *stage, uint64_t now)
{
	bool first = !stage->first_over, near_end = is_near_end(stage, now), all;

	if (stage->running || stage->decoder->cut)
		return;
	if (!is_ready(stage, now)) { /* no tensors; maybe host memory */
		if (stage->host_only && now >= stage->next_host)
			begin_reading(stage, /*all=*/true, OTHER_WITHIN);
		return;
	}
	if (!near_end && !is_reading_due(stage, now))
		return;
	/* DataLoader workers are many: read only those that are not brief. */
	if (stage->maybe_brief && stage->decoder->forked && now < EVERY && is_data_worker(stage)) {
		stage->maybe_brief = false;
		stage->next_read = EVERY;
		return;
	}
	all = first || near_end || is_all_due(stage, now) || is_early_due(stage) ||
	      now >= stage->next_host || stage->ran_out;
	stage->ooms_read += stage->ran_out;
	stage->ran_out = false;
	if (all) {
		stage->next_all_steps = stage->decoder->steps > STEPS_ALL
						? 2 * stage->decoder->steps
						: STEPS_ALL;
		stage->next_all = now > EVERY ? 2 * now : EVERY;
	}
	begin_reading(stage, all, first || is_early_due(stage) ? FIRST_WITHIN : OTHER_WITHIN);
	stage->late |= near_end;
}

void census_stage__begin_last(struct census_stage *stage)
{
	/* A forked process's first objects are in its parent's recording. */
	if ((stage->decoder->forked && !stage->have_last) ||
	    !proc__alive(stage->decoder->target->proc))
		return;
	if (!is_ready(stage, /*now=*/UINT64_MAX) && !stage->host_only)
		return;
	stage->is_last = true;
	begin_reading(stage, /*all=*/true, LAST_WITHIN);
	stage->refused = true;
}

/* True if the part of the reading is over that the session waits for. */
static bool is_over(const struct census_stage *stage)
{
	return atomic_load(stage->is_last ? &stage->job.tensors_done : &stage->job.done);
}

bool census_stage__reads(const struct census_stage *stage)
{
	return stage->running && !stage->only_ledger && !is_over(stage);
}

/* Counts the readings in a row that found the same lasting tensors, and torn readings as long as
 * none has found any. */
static void count_unchanged(struct census_stage *stage, const struct census_state *census)
{
	uint64_t lasting = census_state__hash_lasting(census);

	stage->unchanged = lasting && lasting == stage->lasting && !census->torn_lists
				   ? stage->unchanged + 1
				   : 0;
	stage->lasting = lasting;
	stage->torn_first += census->torn_lists && !lasting;
}

/* Waits for the reading's thread, which has ended or will soon. */
static void end_thread(struct census_stage *stage)
{
	pthread_join(stage->thread, NULL);
	stage->running = false;
	if (stage->job.host)
		stage->next_host = decoder__now(stage->decoder) +
				   (stage->job.took * HOST_SHARE > EVERY
					    ? stage->job.took * HOST_SHARE
					    : EVERY);
}

/* ns until the next attempt. */
static uint64_t pause_after_failure(const struct census_stage *stage)
{
	if (stage->job.err != -EAGAIN)
		return EVERY;
	return stage->maybe_brief ? EARLY : EVERY / 5;
}

int census_stage__end(struct census_stage *stage)
{
	if (!stage->running || stage->only_ledger || !is_over(stage))
		return 0;
	/* After the tensors of the last reading, its thread goes on with host memory. */
	stage->only_ledger = stage->is_last;
	if (!stage->is_last)
		end_thread(stage);
	if (stage->job.err) {
		roles__cancel(&stage->roles);
		log_failure(stage, stage->job.err, stage->job.why);
		say_problem(stage, stage->job.err, stage->job.why);
		stage->next_read = decoder__now(stage->decoder) + pause_after_failure(stage);
		/* Only -ENOMEM ends the capture, which notices by itself if the target ended. */
		return stage->job.err == -ENOMEM ? -ENOMEM : 0;
	}
	stage->took = stage->job.state.end - stage->job.state.begin;
	count_unchanged(stage, &stage->job.state);
	stage->next_read = decoder__now(stage->decoder) + pause_after(stage,
								      decoder__now(stage->decoder),
								      stage->job.tensors_took);
	return 1;
}

/* Emits the ledger of the reading, at its end or at `latest` (ns since start), whichever is
 * earlier. */
static int emit_ledger(struct census_stage *stage, uint64_t latest)
{
	uint64_t time = decoder__since(stage->decoder, stage->job.ledger.end);

	return host_sheet__emit(&stage->job.ledger.sheet, time < latest ? time : latest, pass_on,
				stage);
}

/* Least size of a model whose copy is worth a mention, bytes. */
#define COPY_LEAST (UINT64_C(1) << 20)

/* True if there are several models of this class behind one variable, or another variable leads to
 * a model of the same class and size. */
static bool has_copies(const struct census_state *census, const struct census_model *m)
{
	if (m->count > 1)
		return true;
	for (size_t i = 0; i < census->nmodels && m->bytes >= COPY_LEAST; i++) {
		const struct census_model *other = &census->models[i];

		if (other != m && other->least <= m->bytes && m->bytes <= other->most &&
		    !strcmp(other->cls, m->cls))
			return true;
	}
	return false;
}

/* Sets the fact "models" about classes with several models, at most three: "73 models of class Net,
 * 16.00 MiB each: held by global best[*]". 0 or -ENOMEM. */
static int set_models(struct census_stage *stage, const struct census_state *census)
{
	char text[3 * 1024] = "", model_text[1024];
	const char *before = facts__get(stage->decoder->facts, "models") ?: "";
	size_t n_texts = 0, len = 0;
	int err;

	for (size_t i = 0; i < census->nmodels && n_texts < 3; i++)
		if (has_copies(census, &census->models[i]))
			len += snprintf(text + len, sizeof(text) - len, "%s%s",
					n_texts++ ? "; " : "",
					census_model__say(census, &census->models[i], model_text,
							  sizeof(model_text) - 4));
	if (!strcmp(text, before))
		return 0;
	err = facts__set(stage->decoder->facts, "models", text);
	return err == -ENOMEM ? err : 0;
}

/* Memory that named objects hold, for host memory by line. */
struct held_list {
	struct decoder *decoder;
	struct host_held *v;
	size_t n;
	const char *last; /* name of the last item: equal pointers save a look-up */
};

/* Adds an object's memory. name: kept by the census. 0 or -ENOMEM. */
static int add_held(struct held_list *list, uint64_t addr, uint64_t size, const char *name)
{
	struct host_held *held = &list->v[list->n];

	*held = (struct host_held){ .addr = addr, .size = size };
	/* Objects of one container follow each other. */
	held->name = name == list->last ? list->v[list->n - 1].name
					: decoder__string(list->decoder, name);
	list->last = name;
	list->n++;
	return held->name == UINT32_MAX ? -ENOMEM : 0;
}

/* Passes the memory of CPU tensors and of other objects, with names, to host memory by line. 0 or
 * -ENOMEM. */
static int pass_on_held(struct decoder *decoder, const struct census_state *census)
{
	struct held_list list = { .decoder = decoder,
				  .v = calloc(census->ntensors + census->nmemory + 1,
					      sizeof(*list.v)) };
	int err = list.v ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < census->ntensors; i++) {
		const struct census_tensor *tensor = &census->tensors[i];

		if (tensor->device_type == DEVICE_CPU && *tensor->about->name)
			err = add_held(&list, tensor->addr, tensor->size, tensor->about->name);
	}
	for (size_t i = 0; !err && i < census->nmemory; i++)
		err = add_held(&list, census->memory[i].addr, census->memory[i].size,
			       census->memory[i].name);
	if (err)
		free(list.v);
	else
		host_memory__set_held(decoder->host, list.v, list.n);
	return err;
}

/* Emits a reading. *whole: as for census_stage__take(); false afterwards if blocks of the reading
 * may have been freed since. 0, -ENOMEM or a sink's error. */
static int emit_whole(struct census_stage *stage, struct census_state *st, bool *whole)
{
	bool has_tensors = stage->job.census;
	int err;

	if (!*whole)
		return 0;
	err = has_tensors ? take_counts(stage, st) : 0;
	if (err)
		return err;
	*whole = decoder__knows_stayed(stage->decoder);
	if (!*whole)
		return 0; /* blocks may have been freed, and others be there now */
	err = has_tensors ? emit_reading(stage, st) : 0;
	if (err || stage->decoder->cut)
		return err;
	err = has_tensors && stage->job.opts.memory ? pass_on_held(stage->decoder, st) : 0;
	if (err)
		return err;
	return !stage->is_last && stage->job.has_ledger ? emit_ledger(stage, /*latest=*/UINT64_MAX)
							: 0;
}

int census_stage__take(struct census_stage *stage, bool whole)
{
	struct census_state *census = &stage->job.state;
	const char *torn_text = census->torn_lists ? ", parts kept changing" : "";
	int err = emit_whole(stage, census, &whole);

	if (err || !whole || !stage->job.census) {
		roles__cancel(&stage->roles);
		census_state__free(census);
		return err;
	}
	log_debug("%zu storages named in %.1f ms, %" PRIu64 " objects%s%s", census->ntensors,
		  (double)(census->end - census->begin) / 1e6, census->objects, torn_text,
		  stage->first ? ", at attach" : "");
	err = symbolizer__take_models(stage->decoder->names, census);
	if (err)
		return err;
	if (census->models_reached) {
		err = set_models(stage, census);
		if (err)
			return err;
	}
	stage->readings++;
	stage->torn += census->torn || census->torn_lists;
	stage->holders_cut += census->holders_cut;
	census_state__free(&stage->last);
	stage->last = *census;
	memset(census, 0, sizeof(*census));
	stage->have_last = stage->first_over = true;
	end_problem(stage);
	facts__setf(stage->decoder->facts, "census", "%u", stage->readings);
	facts__setf(stage->decoder->facts, "counter.census.torn", "%u", stage->torn);
	if (stage->holders_cut)
		facts__setf(stage->decoder->facts, "counter.census.holders_cut", "%u",
			    stage->holders_cut);
	err = roles__take(&stage->roles, &stage->last);
	census_state__keep_params(&stage->last);
	return err;
}

bool census_stage__reads_ledger(const struct census_stage *stage)
{
	return stage->running && stage->is_last && !atomic_load(&stage->job.done);
}

void census_stage__give_up(struct census_stage *stage)
{
	if (stage->running)
		atomic_store(&stage->job.cancel, true);
}

int census_stage__take_ledger(struct census_stage *stage, bool whole, uint64_t end)
{
	if (!stage->running || !stage->is_last)
		return 0;
	end_thread(stage);
	return whole && stage->job.has_ledger && reads_host(stage)
		       ? emit_ledger(stage, limit_to_cut(stage, end))
		       : 0;
}

/* Callback of autograd__set_parameters(). Finds the name and module of a parameter, as of the last
 * reading. */
static bool find_parameter(void *ctx, uint64_t tensor, uint32_t *name, uint32_t *module)
{
	struct census_stage *stage = ctx;
	const struct census_tensor *param;

	if (!stage->have_last)
		return false;
	param = census__param(&stage->last, stage->decoder->target->proc, tensor);
	if (!param || param->kind != CENSUS_PARAMETER || !*param->about->name ||
	    !roles__holds(&stage->roles, param))
		return false;
	return intern_names(stage->decoder, param, name, module) == 0 && *name;
}

/* A recorded step has ended at `time`. */
static void note_step(void *ctx, uint64_t time)
{
	struct census_stage *stage = ctx;

	job_steps__ended(stage->job_steps, time);
}

/* Notes blocks that come and go, and whether memory ran out. */
static int on_event(struct sink *sink, const struct event *event)
{
	struct census_stage *stage = (struct census_stage *)sink;
	int err = roles__note(&stage->roles, event);

	stage->ran_out |= event->kind == EVENT_OOM;
	return err ? err : stage->next->event(stage->next, event);
}

struct census_stage *census_stage__new(struct decoder *decoder, struct sink *next)
{
	struct census_stage *stage = calloc(1, sizeof(*stage));

	if (!stage)
		return NULL;
	stage->job_steps = job_steps__new();
	if (!stage->job_steps) {
		free(stage);
		return NULL;
	}
	decoder->on_step = note_step;
	decoder->on_step_ctx = stage;
	stage->sink.event = on_event;
	stage->next = next;
	stage->decoder = decoder;
	/* If the probes were in place from the start, no block is from before attach, so the first
	 * reading is not needed. */
	stage->first_over = decoder->from_start || decoder->forked;
	stage->next_all = EVERY;
	stage->next_all_steps = STEPS_ALL;
	stage->maybe_brief = decoder->forked || (decoder->from_start && decoder->opts->late);
	/* A forked process's first objects are in its parent's recording. */
	if (decoder->forked) {
		stage->next_read = EARLY + decoder->opts->number % SPREAD * (EARLY / 2 / SPREAD);
		stage->next_host =
			EVERY; /* that takes longer, and can hold up changes of mappings */
	}
	stage->host_only = decoder->opts->host && !decoder->target->python;
	census_stage__name_parameters(stage);
	return stage;
}

void census_stage__name_parameters(struct census_stage *stage)
{
	autograd__set_parameters(stage->decoder, find_parameter, stage);
}

void census_stage__free(struct census_stage *stage)
{
	if (!stage)
		return;
	if (stage->running) {
		atomic_store(&stage->job.cancel, true);
		pthread_join(stage->thread, NULL);
		if (!stage->job.err)
			census_state__free(&stage->job.state);
	}
	census_state__free(&stage->last);
	roles__free(&stage->roles);
	job_steps__free(stage->job_steps);
	census__free(stage->census);
	hostmem__free(stage->host);
	free(stage);
}
