/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/census.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/proc.h"

#define ENDS 4096     /* ends of steps that are kept; a reading before them is dropped */
#define WAITING 64    /* readings that wait for later ends, at most */
#define OPTIMIZERS 16 /* optimizers that are followed, the first ones found */
#define OFFSETS 8     /* offsets that are kept for each optimizer */
#define SPAN 4	      /* steps that an offset must hold for: a count of seconds does not */
#define AGAIN 3	      /* readings that prove a second offset */
#define ENOUGH 3      /* readings that prove an offset; a few may all be within a step */
#define LOOKS 16      /* readings after ends of steps; later ones come every LOOK_EVERY ns */
#define LOOK_FIRST                                                                                 \
	2000000ULL /* ns between the first two readings without the end of a step; doubles */
#define LOOK_EVERY 1000000000ULL
/* Readings that suffice at a capture's end. A quarter suffices if they gave two offsets. */
#define LAST_LOOKS 32
#define FLOAT_MOST (1u << 24)	 /* the count where a float32 stays: adding 1 changes nothing */
#define DOUBLE_MOST (1ULL << 53) /* likewise of a double; also the bound of integers */

/* A value of an optimizer's count minus the recorded steps that have ended. */
struct offset {
	uint64_t value;
	uint64_t n;	      /* readings with this value */
	uint64_t first, last; /* recorded steps at the first and last of these readings */
};

/* The offsets of one optimizer. */
struct tally {
	uint64_t obj;
	struct offset v[OFFSETS];
	size_t n;
	uint64_t readings; /* also those whose offset is not in v */
};

/* A reading of an optimizer's count that waits for later ends of steps. */
struct waiting {
	uint64_t obj, count, begin, end;
};

struct job_steps {
	uint64_t ends[ENDS], n_ends; /* ring */
	struct waiting waiting[WAITING];
	size_t n_waiting;
	struct tally tallies[OPTIMIZERS];
	size_t n_tallies;
	struct census_optimizer last[OPTIMIZERS]; /* the last reading */
	size_t n_last, n_optimizers;
	/* looked: job_steps__read_again() was called since the last end of a step. */
	bool read, lost, looked;
	uint64_t looks, last_look, pause; /* pause: ns until a reading without the end of a step */
};

struct job_steps *job_steps__new(void)
{
	struct job_steps *steps = calloc(1, sizeof(*steps));

	if (steps)
		steps->pause = LOOK_FIRST;
	return steps;
}

void job_steps__free(struct job_steps *steps)
{
	free(steps);
}

/* ---- values ---- */

enum { INT32 = 3, INT64 = 4, FLOAT32 = 6, FLOAT64 = 7 }; /* c10::ScalarType */

unsigned job_steps__item_size(uint8_t dtype)
{
	switch (dtype) {
	case INT32:
	case FLOAT32:
		return 4;
	case INT64:
	case FLOAT64:
		return 8;
	}
	return 0;
}

/* Sets *ret to v. False: v is no count, because it is not whole, negative, or at least `most`. */
static bool count_from_double(double v, double most, uint64_t *ret)
{
	if (!(v >= 0 && v < most) || v != floor(v)) /* false for NaN, too */
		return false;
	*ret = (uint64_t)v;
	return true;
}

/* Sets *ret to v. False: v is no count, because it is negative or at least DOUBLE_MOST. */
static bool count_from_int(int64_t v, uint64_t *ret)
{
	*ret = (uint64_t)v;
	return v >= 0 && v < (int64_t)DOUBLE_MOST;
}

bool job_steps__parse(uint8_t dtype, const void *raw, uint64_t *ret)
{
	int32_t i32;
	int64_t i64;
	float f;
	double d;

	switch (dtype) {
	case INT32:
		memcpy(&i32, raw, sizeof(i32));
		return count_from_int(i32, ret);
	case INT64:
		memcpy(&i64, raw, sizeof(i64));
		return count_from_int(i64, ret);
	case FLOAT32:
		memcpy(&f, raw, sizeof(f));
		return count_from_double((double)f, FLOAT_MOST, ret);
	case FLOAT64:
		memcpy(&d, raw, sizeof(d));
		return count_from_double(d, (double)DOUBLE_MOST, ret);
	}
	return false;
}

/* ---- readings ---- */

/* Counts the recorded steps that ended before a time. False: the kept ends do not reach back so
 * far. */
static bool count_ended_before(const struct job_steps *steps, uint64_t time, uint64_t *ret)
{
	uint64_t n = steps->n_ends, oldest = n > ENDS ? n - ENDS : 0;

	while (n > oldest && steps->ends[(n - 1) % ENDS] >= time)
		n--;
	*ret = n;
	return n > oldest || !oldest;
}

/* The tally of an optimizer, which this adds if there is none. NULL: there are too many. */
static struct tally *find_tally(struct job_steps *steps, uint64_t obj)
{
	for (size_t i = 0; i < steps->n_tallies; i++)
		if (steps->tallies[i].obj == obj)
			return &steps->tallies[i];
	if (steps->n_tallies == OPTIMIZERS)
		return NULL;
	steps->tallies[steps->n_tallies].obj = obj;
	return &steps->tallies[steps->n_tallies++];
}

/* Counts a reading of an offset. ended: recorded steps that had ended. */
static void count_offset(struct tally *tally, uint64_t value, uint64_t ended)
{
	struct offset *offset = tally->v;

	tally->readings++;
	while (offset < tally->v + tally->n && offset->value != value)
		offset++;
	if (offset == tally->v + OFFSETS)
		return;
	if (offset == tally->v + tally->n) {
		*offset = (struct offset){ .value = value, .first = ended };
		tally->n++;
	}
	offset->n++;
	offset->first = ended < offset->first ? ended : offset->first;
	offset->last = ended > offset->last ? ended : offset->last;
}

/* Counts a reading, once the recorded steps up to its end are known. */
static void settle_reading(struct job_steps *steps, const struct waiting *waiting)
{
	struct tally *tally = find_tally(steps, waiting->obj);
	uint64_t before, after;

	/* A step that ended during the reading may be in the count or not. */
	if (!tally || !count_ended_before(steps, waiting->begin, &before) ||
	    !count_ended_before(steps, waiting->end, &after) || before != after)
		return;
	if (waiting->count <
	    before) /* the optimizer began after the recording, or its count was set */
		tally->readings++;
	else
		count_offset(tally, waiting->count - before, before);
}

/* Evaluates the waiting readings that were over before a time. */
static void settle_until(struct job_steps *steps, uint64_t time)
{
	size_t n_left = 0;

	for (size_t i = 0; i < steps->n_waiting; i++) {
		if (steps->waiting[i].end < time)
			settle_reading(steps, &steps->waiting[i]);
		else
			steps->waiting[n_left++] = steps->waiting[i];
	}
	steps->n_waiting = n_left;
}

void job_steps__settle(struct job_steps *steps)
{
	settle_until(steps, /*time=*/UINT64_MAX);
}

void job_steps__ended(struct job_steps *steps, uint64_t time)
{
	settle_until(steps, time);
	steps->ends[steps->n_ends++ % ENDS] = time;
	steps->looked = false;
}

void job_steps__lost(struct job_steps *steps)
{
	steps->lost = true;
}

/* Queues a reading of a count until the steps up to its end are known. */
static void add_waiting(struct job_steps *steps, const struct census_optimizer *optimizer)
{
	if (steps->n_waiting < WAITING)
		steps->waiting[steps->n_waiting++] = (struct waiting){
			optimizer->obj, optimizer->count, optimizer->begin, optimizer->end
		};
}

void job_steps__read(struct job_steps *steps, const struct census_optimizer *v, size_t n)
{
	steps->read = true;
	steps->n_optimizers = n;
	steps->n_last = n < OPTIMIZERS ? n : OPTIMIZERS;
	if (steps->n_last)
		memcpy(steps->last, v, steps->n_last * sizeof(*v));
	for (size_t i = 0; i < steps->n_last; i++)
		if (v[i].status == CENSUS_COUNT_KNOWN)
			add_waiting(steps, &v[i]);
}

/* A reading is due after the pause. The first LOOKS readings are also due after an end of a step. */
bool job_steps__is_due(const struct job_steps *steps, uint64_t now)
{
	uint64_t since = now - steps->last_look;

	if (!steps->n_last || steps->lost)
		return false;
	if (since >= steps->pause)
		return true;
	return steps->n_ends && !steps->looked && steps->looks < LOOKS;
}

bool job_steps__has_few(const struct job_steps *steps)
{
	bool any = false, enough = false;

	for (size_t i = 0; i < steps->n_last; i++)
		any |= steps->last[i].status == CENSUS_COUNT_KNOWN && steps->last[i].n;
	for (size_t i = 0; i < steps->n_tallies; i++)
		/* Two neighbours: the lower one is outside of a step. */
		enough |= steps->tallies[i].readings >= LAST_LOOKS ||
			  (steps->tallies[i].readings >= LAST_LOOKS / 4 && steps->tallies[i].n > 1);
	return any && !enough && !steps->lost;
}

/* Reads an optimizer's count again, which is the highest of its parameters: some of these have no
 * gradient in each step. False: it cannot be read. */
static bool reread_count(struct census_optimizer *optimizer, const struct proc *proc)
{
	struct proc_piece pieces[CENSUS_COUNTERS];
	uint64_t raw[CENSUS_COUNTERS] = { 0 }, count;

	for (size_t i = 0; i < optimizer->n; i++)
		pieces[i] = (struct proc_piece){ .addr = optimizer->at[i],
						 .buf = &raw[i],
						 .len = job_steps__item_size(optimizer->dtype[i]) };
	if (!optimizer->n || proc__readv(proc, pieces, optimizer->n))
		return false;
	optimizer->count = 0;
	for (size_t i = 0; i < optimizer->n; i++) {
		/* The memory may be another object's by now. */
		if (pieces[i].err || !job_steps__parse(optimizer->dtype[i], &raw[i], &count))
			return false;
		optimizer->count = count > optimizer->count ? count : optimizer->count;
	}
	return true;
}

void job_steps__read_again(struct job_steps *steps, const struct proc *proc,
			   uint64_t (*clock)(void *ctx), void *ctx)
{
	if (steps->looked || !steps->n_ends)
		steps->pause = steps->pause < LOOK_EVERY / 2 ? 2 * steps->pause : LOOK_EVERY;
	else
		steps->looks++;
	steps->looked = true;
	steps->last_look = clock(ctx);
	for (size_t i = 0; i < steps->n_last; i++) {
		struct census_optimizer optimizer = steps->last[i];

		if (optimizer.status != CENSUS_COUNT_KNOWN || !optimizer.n)
			continue;
		optimizer.begin = clock(ctx);
		if (!reread_count(&optimizer, proc))
			continue;
		optimizer.end = clock(ctx);
		add_waiting(steps, &optimizer);
	}
}

/* ---- result ---- */

static const struct offset *find_offset(const struct tally *tally, uint64_t value)
{
	for (size_t i = 0; i < tally->n; i++)
		if (tally->v[i].value == value)
			return &tally->v[i];
	return NULL;
}

/* An offset with the readings of the next higher one, which were made within a step. */
static struct offset with_next(const struct tally *tally, const struct offset *o)
{
	const struct offset *next = find_offset(tally, o->value + 1);
	struct offset ret = *o;

	if (!next)
		return ret;
	ret.n += next->n;
	ret.first = next->first < ret.first ? next->first : ret.first;
	ret.last = next->last > ret.last ? next->last : ret.last;
	return ret;
}

/* True if readings over several steps gave another offset, too: the count was set meanwhile. */
static bool has_another(const struct tally *tally, uint64_t value)
{
	for (size_t i = 0; i < tally->n; i++) {
		struct offset o = with_next(tally, &tally->v[i]);

		/* An offset one higher or lower is a step that ended during a reading. */
		if (o.value + 1 != value && o.value != value && o.value != value + 1 &&
		    o.n >= AGAIN && o.last - o.first >= SPAN)
			return true;
	}
	return false;
}

/* Finds the offset that more than half of the readings have. False: none is certain. alone: there
 * is only this optimizer, so its count needs no proof that it counts steps. */
static bool choose_offset(const struct tally *tally, bool alone, uint64_t *ret)
{
	struct offset best = { 0 };

	for (size_t i = 0; i < tally->n; i++) {
		struct offset o = with_next(tally, &tally->v[i]);

		if (o.n > best.n || (o.n == best.n && o.value < best.value))
			best = o;
	}
	*ret = best.value;
	return best.n >= ENOUGH && 2 * best.n > tally->readings &&
	       !has_another(tally, best.value) && (alone || best.last - best.first >= SPAN);
}

/* Says why the count of the job's own steps is not known. */
static const char *why_not(const struct job_steps *steps)
{
	static const char *const texts[] = {
		[CENSUS_COUNT_NONE] = "the optimizer keeps no count of its steps",
		[CENSUS_COUNT_ON_DEVICE] = "the optimizer keeps its count on the device",
		[CENSUS_COUNT_UNREADABLE] = "the optimizer's count could not be read",
		[CENSUS_COUNT_KNOWN] = "the optimizer's count does not go with the recorded steps",
	};
	uint8_t status = CENSUS_COUNT_NONE;
	uint64_t readings = 0;

	for (size_t i = 0; i < steps->n_tallies; i++)
		readings = steps->tallies[i].readings > readings ? steps->tallies[i].readings
								 : readings;
	if (!steps->read)
		return "the optimizer was not read";
	if (!steps->n_optimizers)
		return "there is no optimizer";
	for (size_t i = 0; i < steps->n_last; i++)
		status = steps->last[i].status > status ? steps->last[i].status : status;
	if (status == CENSUS_COUNT_KNOWN && readings < ENOUGH)
		return "the optimizer's count was read too seldom";
	if (steps->n_optimizers > 1 && status == CENSUS_COUNT_KNOWN)
		return "there are several optimizers, and no count goes with the recorded steps";
	return texts[status];
}

bool job_steps__first(const struct job_steps *steps, uint64_t *ret, const char **why)
{
	uint64_t offset;
	bool known = false;

	*why = "";
	if (steps->lost) {
		*why = "ends of steps were lost";
		return false;
	}
	for (size_t i = 0; i < steps->n_tallies; i++) {
		if (!choose_offset(&steps->tallies[i],
				   steps->n_optimizers == 1 && steps->n_tallies == 1, &offset))
			continue;
		if (known && *ret != offset + 1) {
			*why = "several optimizers count different steps";
			return false;
		}
		known = true;
		*ret = offset + 1;
	}
	if (!known)
		*why = why_not(steps);
	return known;
}
