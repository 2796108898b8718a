/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/ranks/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/model.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/filter.h"
#include "report/recording/row_set.h"

/* ---- recordings that have more or less than the others ---- */

void outliers__sort(uint64_t *values, size_t n)
{
	if (n)
		qsort(values, n, sizeof(*values), array__compare_u64);
}

uint64_t outliers__median(const uint64_t *sorted, size_t n)
{
	if (!n)
		return 0;
	if (n % 2)
		return sorted[n / 2];
	return sorted[n / 2 - 1] + (sorted[n / 2] - sorted[n / 2 - 1]) / 2;
}

uint64_t outliers__median_with_zeros(const uint64_t *sorted, size_t n, size_t zeros)
{
	uint64_t below, above;

	if (n <= zeros || n / 2 < zeros)
		return 0;
	above = sorted[n / 2 - zeros];
	if (n % 2)
		return above;
	below = n / 2 - 1 < zeros ? 0 : sorted[n / 2 - 1 - zeros];
	return below + (above - below) / 2;
}

/* Returns the median of the n > 1 values without one of this value; of two middle values, the
 * nearer one. */
static uint64_t median_without(const uint64_t *sorted, size_t n, uint64_t value)
{
	size_t removed = 0, end = n, half = (n - 1) / 2;
	uint64_t above, below;

	while (removed < end) { /* finds the first value that is not smaller */
		size_t mid = removed + (end - removed) / 2;

		if (sorted[mid] < value)
			removed = mid + 1;
		else
			end = mid;
	}
	above = sorted[half + (half >= removed)];
	if (n % 2 == 0)
		return above;
	below = sorted[half - 1 + (half - 1 >= removed)];
	if (value >= above)
		return above;
	return value <= below || value - below < above - value ? below : above;
}

/* True if a value differs from the median of the others by more than both limits. */
static bool differs(uint64_t value, uint64_t others, uint64_t least)
{
	uint64_t distance = value > others ? value - others : others - value;

	return distance > least &&
	       (unsigned __int128)distance * 100 > (unsigned __int128)others * OUTLIER_PERCENT;
}

/* Returns 0 or -ENOMEM. */
static int add_outlier(struct outliers *o, struct outlier x)
{
	if (array__grow(&o->all, &o->room, o->n + 1, sizeof(*o->all)))
		return -ENOMEM;
	o->all[o->n++] = x;
	return 0;
}

int outliers__add_to_zeros(struct outliers *o, uint32_t recording, uint64_t bytes, uint64_t least,
			   uint32_t line_no)
{
	if (bytes <= least)
		return 0;
	return add_outlier(
		o, (struct outlier){ .recording = recording, .line_no = line_no, .bytes = bytes });
}

int outliers__add(struct outliers *o, const uint64_t *values, const uint64_t *sorted, size_t n,
		  uint64_t least, uint32_t line_no)
{
	for (size_t i = 0; i < n && n > 1; i++) {
		uint64_t others = median_without(sorted, n, values[i]);

		if (!differs(values[i], others, least) || (n == 2 && values[i] < others))
			continue;
		if (add_outlier(o, (struct outlier){ .recording = (uint32_t)i,
						     .line_no = line_no,
						     .bytes = values[i],
						     .others = others }))
			return -ENOMEM;
	}
	return 0;
}

/* Orders those of all memory first, then by distance, largest first. */
static int cmp_outlier(const void *a, const void *b)
{
	const struct outlier *x = a, *y = b;

	if (!x->line_no != !y->line_no)
		return x->line_no ? 1 : -1;
	if (outlier__distance(x) != outlier__distance(y))
		return outlier__distance(x) > outlier__distance(y) ? -1 : 1;
	if (x->recording != y->recording)
		return x->recording < y->recording ? -1 : 1;
	return x->line_no < y->line_no ? -1 : x->line_no > y->line_no;
}

void outliers__order(struct outliers *o)
{
	if (o->n)
		qsort(o->all, o->n, sizeof(*o->all), cmp_outlier);
}

/* ---- devices that have memory of several ranks of one job ---- */

/* Returns the rank's own device: the one with its number on the host; if it does not use that one,
 * the device with the largest peak. */
static const struct rank_device *own_device(const struct rank *k)
{
	const struct rank_device *own = NULL;

	for (size_t i = 0; i < k->neach; i++) {
		const struct rank_device *d = &k->each[i];

		if ((k->has_local || k->has_number) &&
		    d->device.index == (k->has_local ? k->local : k->number))
			return d;
		if (!own || d->peak > own->peak)
			own = d;
	}
	return own;
}

static int cmp_host(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

/* Compares host and device of two uses: 0 if they are the same device. */
static int cmp_place(const struct device_use *x, const struct device_use *y,
		     const struct rank *ranks)
{
	const struct device *device_x = &x->device->device, *device_y = &y->device->device;
	int order = cmp_host(ranks[x->recording].host, ranks[y->recording].host);

	if (order)
		return order;
	if (device_x->type != device_y->type)
		return device_x->type < device_y->type ? -1 : 1;
	return device_x->index < device_y->index ? -1 : device_x->index > device_y->index;
}

static int cmp_use(const void *a, const void *b, void *ctx)
{
	const struct device_use *x = a, *y = b;
	int order = cmp_place(x, y, ctx);

	return order ? order : (x->recording > y->recording) - (x->recording < y->recording);
}

/* Lists each rank's own device and the others that it has memory on. Returns 0 or -ENOMEM. */
static int list_uses(const struct rank *ranks, size_t n, struct shared_devices *shared)
{
	size_t room = 0;

	for (size_t i = 0; i < n; i++) {
		const struct rank_device *own = own_device(&ranks[i]);

		for (size_t k = 0; k < ranks[i].neach && !ranks[i].worker; k++) {
			const struct rank_device *d = &ranks[i].each[k];

			if (d != own && !d->bytes)
				continue;
			if (array__grow(&shared->uses, &room, shared->n_uses + 1,
					sizeof(*shared->uses)))
				return -ENOMEM;
			shared->uses[shared->n_uses++] = (struct device_use){ (uint32_t)i, d, own };
		}
	}
	return 0;
}

/* Finds the devices that have memory of several of n ranks of one job. *ret borrows the ranks.
 * Returns 0 or -ENOMEM; the caller frees ret, also after an error. */
static int find_shared(const struct rank *ranks, size_t n, struct shared_devices *ret)
{
	size_t room = 0, end;
	int err = list_uses(ranks, n, ret);

	if (err || !ret->n_uses)
		return err;
	qsort_r(ret->uses, ret->n_uses, sizeof(*ret->uses), cmp_use, (void *)(uintptr_t)ranks);
	for (size_t i = 0; i < ret->n_uses; i = end) {
		struct shared_device found = { .first = (uint32_t)i };

		for (end = i;
		     end < ret->n_uses && !cmp_place(&ret->uses[i], &ret->uses[end], ranks);
		     end++) {
			found.n++;
			found.guests += ret->uses[end].device != ret->uses[end].own;
		}
		/* If no rank owns the device, own_device() does not fit this job. */
		if (!found.guests || found.guests == found.n)
			continue;
		if (array__grow(&ret->all, &room, ret->n + 1, sizeof(*ret->all)))
			return -ENOMEM;
		ret->all[ret->n++] = found;
	}
	return 0;
}

static void free_shared(struct shared_devices *s)
{
	free(s->all);
	free(s->uses);
	*s = (struct shared_devices){ 0 };
}

/* Returns whether the device of this name is another rank's own one. */
static bool is_guest(const struct shared_devices *s, size_t recording, const char *device)
{
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = s->all[i].first; k < (size_t)s->all[i].first + s->all[i].n; k++)
			if (s->uses[k].recording == recording &&
			    s->uses[k].device != s->uses[k].own &&
			    !strcmp(s->uses[k].device->name, device))
				return true;
	return false;
}

/* ---- steps with equal numbers of the job ---- */

static size_t count_kept_steps(const struct model *m)
{
	struct model_step s;
	size_t n = 0;

	while (model__step(m, n, &s))
		n++;
	return n;
}

/* Reads the durations of the numbered steps. Leaves out the first step if it began before the
 * recording. Returns 0 or -ENOMEM. */
static int read_spans(const struct model *m, struct job_spans *ret)
{
	size_t kept = count_kept_steps(m);
	size_t all = model__steps(m);
	size_t skip = kept == all && !model__first_step_whole(m);
	struct model_step step;

	*ret = (struct job_spans){ 0 };
	if (kept <= skip || !model__job_step(m, &ret->first))
		return 0;
	ret->ns = calloc(kept - skip, sizeof(*ret->ns));
	if (!ret->ns)
		return -ENOMEM;
	ret->first += all - kept + skip;
	for (size_t i = skip; i < kept && model__step(m, i, &step); i++)
		ret->ns[ret->n++] = step.end - step.start;
	return 0;
}

static void free_spans(struct job_spans *s)
{
	free(s->ns);
	*s = (struct job_spans){ 0 };
}

/* Narrows the range from *first to *last of step numbers to those that s has, too. Returns whether
 * any is left. */
static bool narrow_steps(const struct job_spans *s, uint64_t *first, uint64_t *last)
{
	if (!s->n)
		return false;
	*first = s->first > *first ? s->first : *first;
	*last = s->first + s->n - 1 < *last ? s->first + s->n - 1 : *last;
	return *first <= *last;
}

/* Returns the median duration of the steps `first` to `last`. Sorts their durations. */
static uint64_t median_span(struct job_spans *s, uint64_t first, uint64_t last)
{
	uint64_t *from = s->ns + (first - s->first);
	size_t n = last - first + 1;

	outliers__sort(from, n);
	return outliers__median(from, n);
}

/* ---- recordings ---- */

#define SKETCH_MOST 4096	  /* bytes of a sketch: larger ones are not compared */
#define SLOW_NS UINT64_C(1000000) /* least difference of step times that counts, ns */

struct ranks *ranks__new(const struct ranks_opts *o)
{
	struct ranks *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->opts = o;
	if (!row_set__init(&r->set) && !scope_set__init(&r->scopes))
		return r;
	ranks__free(r);
	return NULL;
}

void ranks__free(struct ranks *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++) {
		free(r->all[i].name);
		free(r->all[i].host);
		free(r->all[i].cwd);
		free(r->all[i].detail);
		free(r->all[i].command);
		free(r->all[i].sketch);
		free_spans(&r->all[i].spans);
		for (size_t k = 0; k < r->all[i].ngrowth; k++)
			free(r->all[i].growth[k]);
		free(r->all[i].growth);
		free(r->all[i].each);
	}
	row_set__drop(&r->set);
	free(r->all);
	free(r->lines);
	free(r->cells);
	free(r->outliers.all);
	free(r->slow.all);
	rank_groups__free(&r->groups);
	process_tree__free(&r->tree);
	free_shared(&r->shared);
	scope_set__drop(&r->scopes);
	free(r);
}

/* ---- lines ---- */

/* Clears the texts of a row that --by ignores, and keeps copies of the others. *ret: the row's
 * identity for row_set__number(). Returns 0 or -ENOMEM. */
static int split_words(struct ranks *r, struct row *row, struct row *ret)
{
	unsigned groups = words__row_properties(r->opts->by, r->opts->split);
	bool by_line = groups & 1U << BY_LINE,
	     place_only = by_line && r->opts->words && !r->opts->split; /* for text */
	bool by_module = (groups & (1U << BY_MODULE | 1U << BY_LAYER)) && !place_only,
	     by_phase = (groups & 1U << BY_PHASE) && !place_only && !row->before_attach;

	if (!by_module)
		row->module = row->module_class = row->module_root = "";
	if (!(groups & 1U << BY_CATEGORY) || place_only)
		row->category = NULL;
	if (!by_line || !row->before_attach) /* names identify only rows from before attach */
		row->name = NULL;
	row->node_class = NULL;
	if (!by_line)
		row->file = row->func = NULL;
	if (!(groups & 1U << BY_THREAD))
		row->thread = NULL;
	if (!(groups & 1U << BY_SCOPE))
		row->scope = NULL;
	if (!by_phase)
		row->phase = PHASE_OTHER;
	row->tid = 0; /* thread IDs differ in each recording */
	if (row_set__keep(r->set.texts, row))
		return -ENOMEM;
	*ret = *row;
	if (!by_line)
		ret->line = 0;
	if (!by_line || (place_only && row->file))
		ret->source = NULL;
	return 0;
}

/* Finds or adds the line of a row. *ret: its index. Returns 0 or -ENOMEM. */
static int find_line(struct ranks *r, struct row *row, uint32_t *ret)
{
	struct rank_line *line;
	struct row words;

	if (array__grow(&r->lines, &r->room_lines, r->nlines + 1, sizeof(*r->lines)) ||
	    split_words(r, row, &words) ||
	    row_set__number(&r->set, &words, /*kind=*/NULL, /*stack=*/NULL, ret))
		return -ENOMEM;
	if (*ret < r->nlines)
		return 0;
	line = &r->lines[r->nlines++];
	*line = (struct rank_line){ .row = *row };
	line->row.bytes = line->row.count = line->row.anonymous = 0;
	return 0;
}

/* ---- adding a recording ---- */

/* Adds a row of a recording to its line, as a cell. Returns 0 or -ENOMEM. */
static int add_row(struct ranks *r, uint32_t recording, struct row row)
{
	uint64_t bytes = row.bytes, count = row.count, anonymous = row.anonymous;
	struct row *sums;
	uint32_t line;
	int err = find_line(r, &row, &line);

	if (err)
		return err;
	if (array__grow(&r->cells, &r->room_cells, r->ncells + 1, sizeof(*r->cells)))
		return -ENOMEM;
	r->cells[r->ncells++] = (struct rank_cell){
		.recording = recording, .line = line, .bytes = bytes, .count = count
	};
	sums = &r->lines[line].row;
	sums->bytes += bytes;
	sums->count += count;
	sums->anonymous += anonymous;
	return 0;
}

/* Adds the rows of a device to the recording with this index. Returns 0 or -errno. */
static int add_rows(struct ranks *r, const struct analysis *a, size_t device, uint32_t recording)
{
	struct row_opts opts = { .by = r->opts->by,
				 .split = r->opts->split,
				 .when = ROWS_AT_MARK,
				 .which_line = r->opts->which_line };
	bool names = r->opts->words && opts.by == BY_LINE && !opts.split;
	struct holder_rows rows;
	int err;

	opts.any_module = opts.any_phase = opts.any_category = r->opts->words;
	report_select__apply(r->opts->select, &opts);
	err = holder_rows__of(a->model, device, &opts, names, &rows);
	if (err)
		return err;
	for (size_t i = 0; i < rows.n && !err; i++) {
		err = add_row(r, recording, rows.all[i]);
		r->all[recording].rows += rows.all[i].bytes;
	}
	holder_rows__free(&rows);
	return err;
}

/* True for the lines of PyTorch that map a tensor which another process put into shared memory. */
static bool maps_shared(const struct row *row)
{
	static const char file[] = "torch/multiprocessing/reductions.py";
	size_t len = row->file ? strlen(row->file) : 0, file_len = sizeof(file) - 1;

	return row->func && len >= file_len && !strcmp(row->file + len - file_len, file) &&
	       (!strcmp(row->func, "rebuild_storage_fd") ||
		!strcmp(row->func, "rebuild_storage_filename"));
}

/* Adds the shared memory that the process mapped from others to k->shared. Returns 0 or -ENOMEM. */
static int add_shared(struct rank *k, const struct analysis *a, size_t device)
{
	struct row_opts opts = { .by = BY_LINE, .when = ROWS_AT_MARK, .which_line = FRAMES_ALL };
	struct row *rows;
	size_t n;
	int err;

	opts.any_module = opts.any_phase = opts.any_category = true;
	err = model__rows(a->model, device, &opts, &rows, &n);
	if (err)
		return err == -ENOENT ? 0 : err;
	for (size_t i = 0; i < n; i++)
		if (maps_shared(&rows[i]))
			k->shared += rows[i].bytes;
	free(rows);
	return 0;
}

/* Adds the last recording's process to the tree. Returns 0 or -ENOMEM. */
static int add_process(struct ranks *r, const struct analysis *a)
{
	const struct rank *k = &r->all[r->n - 1];
	struct process_facts *process = malloc(sizeof(*process));
	int err;

	if (!process)
		return -ENOMEM;
	process_facts__read(process, a->facts, k->command);
	err = process_tree__add(&r->tree, process, (uint32_t)r->n - 1, k->allocated);
	free(process);
	return err;
}

/* Adds a reported device to the recording's sums. */
static void add_device(struct rank *k, const struct model_device *d)
{
	size_t len = strlen(k->devices);

	snprintf(k->devices + len, sizeof(k->devices) - len, "%s%s", len ? " " : "", d->name);
	if (!k->ndevices++ || d->mark_time < k->time)
		k->time = d->mark_time;
	k->allocated += d->mark_allocated;
	k->reserved += d->mark_reserved;
	k->peak += d->peak_allocated;
	k->total_allocated += d->total_allocated;
	k->before_attach += d->mark_before_attach;
	k->is = d->mark_is > k->is ? d->mark_is : k->is;
	k->drift = d->drift > k->drift ? d->drift : k->drift;
	k->has_totals |= d->has_totals;
	k->before_unknown |= !d->before_known;
}

/* Adds an accelerator that the recording uses to k->each. Returns 0 or -ENOMEM. */
static int note_device(struct rank *k, const struct model_device *d)
{
	struct rank_device *added;

	if (array__grow(&k->each, &k->room_each, k->neach + 1, sizeof(*k->each)))
		return -ENOMEM;
	added = &k->each[k->neach++];
	*added = (struct rank_device){ .device = d->device,
				       .bytes = d->mark_allocated,
				       .peak = d->peak_allocated };
	snprintf(added->name, sizeof(added->name), "%s", d->name);
	return 0;
}

/* Keeps the largest row of each device of the last recording, if it uses several. Returns 0 or
 * -ENOMEM. */
static int note_rows(struct ranks *r, const struct analysis *a)
{
	struct row_opts opts = { .by = BY_LINE,
				 .when = ROWS_AT_MARK,
				 .which_line = r->opts->which_line,
				 .any_module = true,
				 .any_phase = true,
				 .any_category = true };
	struct rank *k = &r->all[r->n - 1];

	for (size_t i = 0; i < k->neach && k->neach > 1; i++) {
		int device = model__find_device(a->model, k->each[i].name), err;
		struct row *largest = &k->each[i].most;
		struct holder_rows rows;

		if (device < 0)
			return 0;
		err = holder_rows__of(a->model, (size_t)device, &opts, /*names=*/true, &rows);
		if (err)
			return err == -ENOENT ? 0 : err;
		if (rows.n)
			*largest = (struct row){ .bytes = rows.all[0].bytes,
						 .before_attach = rows.all[0].before_attach,
						 .history = rows.all[0].history,
						 .file = rows.all[0].file,
						 .line = rows.all[0].line,
						 .name = rows.all[0].name,
						 .module = "" };
		if (strings__keep(r->set.texts, &largest->file) ||
		    strings__keep(r->set.texts, &largest->name)) {
			largest->file = largest->name = NULL; /* the rows own them */
			err = -ENOMEM;
		}
		holder_rows__free(&rows);
		if (err)
			return err;
	}
	return 0;
}

/* Sets the moment of a recording with several devices, which peak at different times: the time of
 * the peak of their sum. */
static void set_time(const struct ranks *r, struct rank *k, const struct analysis *a)
{
	struct model_all all;

	if (k->ndevices < 2 || r->opts->at != AT_PEAK)
		return;
	model__all(a->model, &all);
	k->time = all.peak_allocated_time;
}

/* Keeps the proportional set size of a recording whose figures are resident memory. */
static void set_pss(struct rank *k, const struct model_host *h)
{
	const struct host_figure *pss = h ? &h->at_moment.sheet.part[HOST_PSS] : NULL;

	k->on_host = true;
	k->has_pss = pss && pss->known;
	k->pss = k->has_pss ? pss->bytes : 0;
}

/* Keeps the growth of a device. Returns 0 or -ENOMEM. */
static int add_growth(struct rank *k, const struct analysis *a, size_t device)
{
	struct growth_summary summary, *copy;
	int err = growth_summary__of(a->model, a->facts, device, a->duration, &summary);

	if (err)
		return err == -EINVAL ? 0 : err;
	copy = growth_summary__copy(&summary);
	growth_summary__free(&summary);
	if (!copy || array__grow(&k->growth, &k->growth_room, k->ngrowth + 1, sizeof(*k->growth))) {
		free(copy);
		return -ENOMEM;
	}
	k->growth[k->ngrowth++] = copy;
	k->steady &= copy->verdict == GROWTH_VERDICT_NONE;
	if (copy->verdict == GROWTH_VERDICT_GROWS &&
	    (!k->grows || copy->per_step > k->grows->per_step))
		k->grows = copy;
	return 0;
}

/* Returns the cleaned command line, for free(), without --local_rank: old launchers pass it, and
 * the rest is the same in the whole job. NULL if memory is short. */
static char *command_of(const struct facts *f)
{
	char **argv = words__cmdline(f), *text = NULL, word[REPORT_TEXT / 4];
	FILE *out;
	size_t size;

	out = open_memstream(&text, &size);
	if (!out) {
		words__free_cmdline(argv);
		return NULL;
	}
	for (char **p = argv; p && *p; p++) {
		const char *slash = p == argv ? strrchr(*p, '/') : NULL;
		const char *s = slash ? slash + 1 : *p;

		if (text__starts(*p, "--local_rank") || text__starts(*p, "--local-rank")) {
			p += !(*p)[12] && p[1];
			continue;
		}
		fprintf(out, "%s%s", p == argv ? "" : " ",
			text__clean(word, sizeof(word), s, strlen(s)));
	}
	words__free_cmdline(argv);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* Reads the facts about clocks that fetch adds. c->known stays false if one is missing or
 * absurd. */
static void read_clock(struct rank_clock *c, const struct facts *f)
{
	uint64_t zero, from, error;

	if (!facts__signed(f, "clock_offset_ns", &c->offset) ||
	    !facts__number(f, "clock_offset_error_ns", &error) ||
	    !facts__number(f, "clock_zero_ns", &zero))
		return;
	facts__number(f, "window_start_ns", &from);
	c->error = error;
	c->known = zero < INT64_MAX / 4 && from < INT64_MAX / 4 && error < INT64_MAX / 4 &&
		   c->offset < INT64_MAX / 4 && c->offset > -INT64_MAX / 4;
	if (c->known)
		c->begin = (int64_t)zero + (int64_t)from - c->offset;
}

/* Reads the durations of the steps, or the reason why the steps have no numbers in the job. Returns
 * 0 or -ENOMEM. */
static int read_steps(struct rank *k, const struct analysis *a)
{
	const char *why = facts__get(a->facts, "job_step_unknown");

	k->steps = model__whole_steps(a->model);
	k->step_time = model__step_time(a->model);
	k->older = !why && !facts__get(a->facts, "job_step");
	if (!why || !*why)
		why = "its recording does not have the number";
	if (read_spans(a->model, &k->spans))
		return -ENOMEM;
	if (!k->spans.n || !model__job_step(a->model, &k->first_job_step))
		text__clean(k->no_number, sizeof(k->no_number), why, strlen(why));
	return 0;
}

/* Copies what identifies the recording, its clock and its steps. Returns 0 or -ENOMEM. */
static int describe_recording(struct rank *k, const struct analysis *a)
{
	const char *cwd = facts__get(a->facts, "cwd");
	const char *comm = facts__get(a->facts, "comm");
	const char *host = a->host ? a->host : facts__get(a->facts, "hostname");
	const char *sketch = facts__get(a->facts, "sketch");
	char detail[DETAIL_TEXT];

	k->name = strdup(a->name);
	k->host = host ? strdup(host) : NULL;
	k->cwd = cwd ? strdup(cwd) : NULL;
	k->command = model__is_snapshot(a->model) ? strdup("PyTorch snapshot")
						  : command_of(a->facts);
	k->detail = strdup(detail__reduced(detail, sizeof(detail), a->facts));
	if (sketch && strlen(sketch) > SKETCH_MOST)
		sketch = NULL;
	k->sketch = sketch ? strdup(sketch) : NULL;
	k->has_number = facts__number(a->facts, "rank", &k->number);
	k->has_local = facts__number(a->facts, "local_rank", &k->local);
	k->has_world = facts__number(a->facts, "world_size", &k->world);
	k->pid = words__fact_number(a->facts, "pid");
	k->parent = words__fact_number(a->facts, "parent");
	k->data_worker = comm && !strcmp(comm, "pt_data_worker");
	k->events = model__events(a->model);
	k->lost = words__lost(a->model, a->facts);
	k->complete = a->complete;
	read_clock(&k->clock, a->facts);
	if (!k->name || !k->command || !k->detail || (cwd && !k->cwd) || (host && !k->host) ||
	    (sketch && !k->sketch))
		return -ENOMEM;
	return read_steps(k, a);
}

/* True if k is a child process of boss, and either has its rank or is a DataLoader's worker. */
static bool is_worker_of(const struct rank *k, const struct rank *boss)
{
	if (k == boss || k->worker || !k->parent || k->parent != boss->pid)
		return false;
	return k->has_number && boss->has_number ? k->number == boss->number : k->data_worker;
}

/* Marks a worker, unless its parent is in the end its own worker: damaged facts can form a
 * circle. */
static void set_worker(struct ranks *r, size_t worker, size_t boss)
{
	struct rank *k = &r->all[worker];
	size_t top = boss;

	while (r->all[top].worker)
		top = r->all[top].boss;
	if (top == worker)
		return;
	k->worker = true;
	k->boss = (uint32_t)boss;
	r->workers++;
	if (!k->has_number && r->all[boss].has_number) {
		k->number = r->all[boss].number;
		k->has_number = true;
	}
}

/* Marks the workers among the last recording and its parent or children. Child processes inherit
 * the variables with the rank, so a process with its parent's rank is a worker. */
static void find_workers(struct ranks *r)
{
	size_t last = r->n - 1;

	for (size_t i = 0; i < last; i++) {
		if (is_worker_of(&r->all[last], &r->all[i]))
			set_worker(r, last, i);
		if (is_worker_of(&r->all[i], &r->all[last]))
			set_worker(r, i, last);
	}
}

/* True if device i is to be reported: the requested one, if any. device: its index, -1: none.
 * Otherwise all used accelerators (others: there are some), or else only "host", which includes the
 * CPU's tensors, or the CPU if there is no "host". */
static bool is_reported(const struct analysis *a, size_t i, int device, bool others)
{
	int host = model__find_device(a->model, "host");
	struct model_device d;

	model__device(a->model, i, &d);
	if (device >= 0)
		return (size_t)device == i && d.marked;
	if (others)
		return d.marked && !device__on_host(d.device) && rank__uses(&d);
	return d.marked && (host < 0 || (size_t)host == i);
}

/* Adds a device's figures and rows to the last recording. Returns 0 or -errno. */
static int add_figures(struct ranks *r, const struct analysis *a, size_t device,
		       const struct model_device *d)
{
	struct rank *k = &r->all[r->n - 1];
	int err;

	add_device(k, d);
	if (d->device.type == DEVICE_HOST)
		set_pss(k, model__host(a->model));
	err = add_rows(r, a, device, (uint32_t)r->n - 1);
	if (err)
		return err;
	err = add_growth(k, a, device);
	if (err)
		return err;
	return device__on_host(d->device) ? add_shared(k, a, device) : 0;
}

/* True if two lists of words have one in common. A list ends before a slash, and has a space before
 * each word. */
static bool share_word(const char *a, const char *b)
{
	for (a += strspn(a, " "); *a && *a != '/'; a += strspn(a, " ")) {
		size_t len = strcspn(a, " ");

		for (const char *found = b; (found = memmem(found, strcspn(found, "/"), a, len));
		     found++)
			if (found[-1] == ' ' && (!found[len] || found[len] == ' '))
				return true;
		a += len;
	}
	return false;
}

/* True if two snapshots are of one process at two moments: they have entries in common, or, if none
 * was made while both have a trace, segments. a, b: the facts "sketch": two times, entries, a slash
 * and segments. */
static bool of_one_process(const char *a, const char *b)
{
	unsigned long long from_a, to_a, from_b, to_b;
	const char *segments_a = strchr(a, '/');
	const char *segments_b = strchr(b, '/');
	int skip_a = 0, skip_b = 0;

	if (sscanf(a, "%llu %llu%n", &from_a, &to_a, &skip_a) < 2 || !segments_a ||
	    sscanf(b, "%llu %llu%n", &from_b, &to_b, &skip_b) < 2 || !segments_b)
		return false;
	if (share_word(a + skip_a, b + skip_b))
		return true;
	if (to_a && to_b && from_a <= to_b && from_b <= to_a)
		return false;
	return share_word(segments_a + 1, segments_b + 1);
}

/* Marks the last recording if it is a snapshot of the same process as an earlier one: a number in
 * the name of a snapshot may be a rank, or a moment. */
static void find_same_process(struct ranks *r)
{
	struct rank *last = &r->all[r->n - 1];

	for (size_t i = 0; i + 1 < r->n && last->sketch && !last->again; i++) {
		const struct rank *k = &r->all[i];

		if (!k->sketch || !of_one_process(k->sketch, last->sketch))
			continue;
		log_info("%s and %s: snapshots of one process, not of two ranks", k->name,
			 last->name);
		last->again = true;
		last->has_number = false;
	}
}

/* Notes the scopes of a recording on the device, or on its main one. Returns 0 or -ENOMEM. */
static int note_scopes(struct ranks *r, const struct analysis *a, int device)
{
	int of = device < 0 ? model__main_device(a->model) : device;
	bool found;

	r->names_functions |= model__scope_function(a->model, 0, &found) != NULL;
	return of < 0 ? 0 : scope_set__add(&r->scopes, r->n - 1, a->model, (size_t)of);
}

int ranks__add(struct ranks *r, const struct analysis *a, int device)
{
	size_t n = model__devices(a->model);
	struct model_device dev;
	bool others = false;
	int err;

	for (size_t i = 0; i < n; i++)
		others |= is_reported(a, i, device, /*others=*/true);
	if (!n) {
		r->empty++;
		return -ENODATA;
	}
	if (r->n >= UINT32_MAX || array__grow(&r->all, &r->room, r->n + 1, sizeof(*r->all)))
		return -ENOMEM;
	r->all[r->n] = (struct rank){ .added = (uint32_t)r->n,
				      .steady = growth__watches(a->model, BY_LINE) };
	err = describe_recording(&r->all[r->n++], a);
	if (!err)
		find_same_process(r);
	find_workers(r);
	for (size_t i = 0; i < n && !err; i++) {
		model__device(a->model, i, &dev);
		if (dev.marked && !device__on_host(dev.device) && rank__uses(&dev))
			err = note_device(&r->all[r->n - 1], &dev);
		if (!err && is_reported(a, i, device, others))
			err = add_figures(r, a, i, &dev);
	}
	if (err)
		return err;
	err = note_rows(r, a);
	if (err)
		return err;
	set_time(r, &r->all[r->n - 1], a);
	err = note_scopes(r, a, device);
	return err ? err : add_process(r, a);
}

/* ---- after the last recording ---- */

/* True for two different processes with the same rank. */
static bool is_twin(const struct rank *a, const struct rank *b)
{
	return a != b && !a->worker && !b->worker && a->number == b->number;
}

bool ranks__of_one_process(const struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->all[i].again)
			return true;
	return false;
}

bool ranks__one_job(const struct ranks *r)
{
	const struct rank *first = NULL;

	for (size_t i = 0; i < r->n; i++) {
		const struct rank *a = &r->all[i];

		if (a->worker)
			continue;
		first = first ? first : a;
		if (!a->has_number || strcmp(a->command, first->command) != 0 ||
		    (a->has_world && first->has_world && a->world != first->world))
			return false;
		for (size_t k = 0; k < i; k++)
			if (is_twin(a, &r->all[k]))
				return false;
	}
	return r->n > 1;
}

bool ranks__one_tree(const struct ranks *r)
{
	size_t roots = 0;

	for (size_t i = 0; i < r->tree.n; i++)
		roots += r->tree.all[i].parent == PROCESS_NONE;
	return r->n > 1 && roots == 1 && r->tree.recordings == r->n && !ranks__one_job(r);
}

/* Orders by rank, workers after their rank, then in the order of adding. */
static int cmp_rank(const void *a, const void *b, void *ctx)
{
	const struct rank *all = ctx, *x = &all[*(const uint32_t *)a],
			  *y = &all[*(const uint32_t *)b];

	if (x->has_number && y->has_number && x->number != y->number)
		return x->number < y->number ? -1 : 1;
	if (x->worker != y->worker)
		return x->worker ? 1 : -1;
	return x < y ? -1 : x > y;
}

/* Sorts the recordings by rank, if all have one, and renumbers the cells. Returns 0 or -ENOMEM. */
static int sort_ranks(struct ranks *r)
{
	uint32_t *old_index = calloc(r->n + 1, 2 * sizeof(*old_index)),
		 *new_index = old_index + r->n;
	struct rank *copy = calloc(r->n + 1, sizeof(*copy));
	bool all_numbered = true;

	if (!old_index || !copy) {
		free(old_index);
		free(copy);
		return -ENOMEM;
	}
	for (size_t i = 0; i < r->n; i++) {
		old_index[i] = (uint32_t)i;
		all_numbered &= r->all[i].has_number;
		copy[i] = r->all[i];
	}
	if (all_numbered && r->n)
		qsort_r(old_index, r->n, sizeof(*old_index), cmp_rank, copy);
	for (size_t i = 0; i < r->n; i++) {
		r->all[i] = copy[old_index[i]];
		new_index[old_index[i]] = (uint32_t)i;
	}
	for (size_t i = 0; i < r->ncells; i++)
		r->cells[i].recording = new_index[r->cells[i].recording];
	for (size_t i = 0; i < r->tree.n; i++)
		if (r->tree.all[i].recording != PROCESS_NONE)
			r->tree.all[i].recording = new_index[r->tree.all[i].recording];
	free(old_index);
	free(copy);
	return 0;
}

/* Sets the names of recordings: ranks and workers of a job, otherwise names of files. */
static void set_labels(struct ranks *r)
{
	bool job = ranks__one_job(r);
	uint64_t worker_no = 0;

	for (size_t i = 0; i < r->n; i++) {
		struct rank *k = &r->all[i];

		worker_no = k->worker && i && (!k->has_number || r->all[i - 1].number == k->number)
				    ? worker_no + 1
				    : k->worker;
		if (!job)
			text__clean(k->label, sizeof(k->label), k->name, strlen(k->name));
		else if (k->has_number && k->worker)
			snprintf(k->label, sizeof(k->label), "rank %llu worker %llu",
				 (unsigned long long)k->number, (unsigned long long)worker_no);
		else
			snprintf(k->label, sizeof(k->label), "rank %llu",
				 (unsigned long long)k->number);
	}
}

/* Sets k->on of each rank, unless all ranks are on one host. */
static void set_hosts(struct ranks *r)
{
	const char *first = r->n ? r->all[0].host : NULL;
	bool several = false;
	char host[48];

	for (size_t i = 1; i < r->n && first; i++)
		several |= r->all[i].host && strcmp(r->all[i].host, first) != 0;
	for (size_t i = 0; i < r->n && several; i++) {
		struct rank *k = &r->all[i];

		if (k->host)
			snprintf(k->on, sizeof(k->on), " on %s",
				 text__clean(host, sizeof(host), k->host, strlen(k->host)));
	}
}

/* Replaces the names of files by names and PIDs of processes, for a process tree. */
static void set_tree_labels(struct ranks *r)
{
	for (size_t i = 0; i < r->tree.n; i++) {
		const struct process_node *node = &r->tree.all[i];
		char name[PROCESS_NAME];

		if (node->recording == PROCESS_NONE)
			continue;
		snprintf(name, sizeof(name), "%s", node->name);
		snprintf(r->all[node->recording].label, sizeof(r->all[node->recording].label),
			 "%s %llu", words__cut(name, /*columns=*/24),
			 (unsigned long long)node->id.pid);
	}
}

static int cmp_cell(const void *a, const void *b)
{
	const struct rank_cell *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return x->recording < y->recording ? -1 : x->recording > y->recording;
}

static int cmp_line(const void *a, const void *b)
{
	return row__compare(&((const struct rank_line *)a)->row,
			    &((const struct rank_line *)b)->row);
}

/* Merges the cells of a line on several devices of a recording, and gives each line its range of
 * cells. */
static void gather_cells(struct ranks *r)
{
	size_t n = 0;

	if (r->ncells)
		qsort(r->cells, r->ncells, sizeof(*r->cells), cmp_cell);
	for (size_t i = 0; i < r->ncells; i++) {
		struct rank_cell *last = n ? &r->cells[n - 1] : NULL;

		if (last && last->line == r->cells[i].line &&
		    last->recording == r->cells[i].recording) {
			last->bytes += r->cells[i].bytes;
			last->count += r->cells[i].count;
			continue;
		}
		if (!last || last->line != r->cells[i].line)
			r->lines[r->cells[i].line].first = (uint32_t)n;
		r->lines[r->cells[i].line].n++;
		r->cells[n++] = r->cells[i];
	}
	r->ncells = n;
}

#define NO_FAMILY UINT32_MAX

/* State of the comparison. Only the recordings of a family are compared with each other. */
struct compared {
	uint64_t *values, *sorted; /* values of the current family */
	uint32_t *which;	   /* the recordings of all families, family by family */
	size_t n;		   /* number of values */
	bool no_holders;	   /* skip memory from before attach: see has_unnamed_holders() */
	uint32_t *family, *place;  /* by recording: family or NO_FAMILY, and index in it */
	struct family {
		uint32_t first, n; /* range of which */
	} * families;
	size_t n_families;
	struct rank_cell *cells; /* buffer for the cells of a line */
};

/* True if only a part of the memory from before attach is named. The reading of objects may have
 * been too late in some ranks, whose equal memory is then in another line. */
static bool has_unnamed_holders(const struct ranks *r)
{
	bool named = false, unnamed = false;

	for (size_t i = 0; i < r->nlines; i++) {
		named |= r->lines[i].row.before_attach && r->lines[i].row.name;
		unnamed |= r->lines[i].row.before_attach && !r->lines[i].row.name;
	}
	return named && unnamed;
}

/* Adds the outliers among the c->n values, of the recordings from c->which[first] on. Returns 0 or
 * -ENOMEM. */
static int add_outliers(struct outliers *o, struct compared *c, size_t first, uint64_t least,
			uint32_t line_no)
{
	size_t old_n = o->n;
	int err;

	memcpy(c->sorted, c->values, c->n * sizeof(*c->values));
	outliers__sort(c->sorted, c->n);
	err = outliers__add(o, c->values, c->sorted, c->n, least, line_no);
	for (size_t i = old_n; i < o->n; i++)
		o->all[i].recording = c->which[first + o->all[i].recording];
	return err;
}

/* Makes a family of the recorded processes that have the same parent as process `from`, and the
 * same name but for a number. */
static void make_family(const struct ranks *r, struct compared *c, size_t from)
{
	for (size_t i = from; i < r->tree.n; i++)
		if (r->tree.all[i].recording != PROCESS_NONE &&
		    process_node__is_like(&r->tree.all[i], &r->tree.all[from]))
			c->family[r->tree.all[i].recording] = (uint32_t)c->n_families;
	c->n_families++;
}

/* True if the process has a recording and no process before it has the same parent and name. */
static bool is_first_like(const struct ranks *r, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (r->tree.all[i].recording != PROCESS_NONE &&
		    process_node__is_like(&r->tree.all[i], &r->tree.all[at]))
			return false;
	return r->tree.all[at].recording != PROCESS_NONE;
}

/* For qsort_r(): by family, then by recording. ctx: family of each recording. */
static int cmp_family(const void *a, const void *b, void *ctx)
{
	const uint32_t *family = ctx;
	const struct rank_cell *x = a, *y = b;
	uint32_t family_x = family[x->recording], family_y = family[y->recording];

	if (family_x != family_y)
		return family_x < family_y ? -1 : 1;
	return x->recording < y->recording ? -1 : x->recording > y->recording;
}

/* Compares a family at a line. cells: of the n recordings that have the line; the others have 0
 * bytes. If those are the majority, their median is 0, and no array of all recordings is needed.
 * Returns 0 or -ENOMEM. */
static int compare_cells(struct ranks *r, struct compared *c, const struct family *f,
			 const struct rank_cell *cells, size_t n, uint32_t line_no)
{
	int err = 0;

	if (2 * n + 1 < f->n) {
		for (size_t i = 0; i < n && !err; i++)
			err = outliers__add_to_zeros(&r->outliers, cells[i].recording,
						     cells[i].bytes, OUTLIER_BYTES, line_no);
		return err;
	}
	c->n = f->n;
	memset(c->values, 0, c->n * sizeof(*c->values));
	for (size_t i = 0; i < n; i++)
		c->values[c->place[cells[i].recording]] = cells[i].bytes;
	return add_outliers(&r->outliers, c, f->first, OUTLIER_BYTES, line_no);
}

/* Compares each family with several members at a line. Returns 0 or -ENOMEM. */
static int compare_line(struct ranks *r, struct compared *c, const struct rank_line *l)
{
	uint32_t line_no = (uint32_t)(l - r->lines) + 1;
	size_t n = 0, end;
	int err = 0;

	for (size_t first = l->first; first < (size_t)l->first + l->n; first++)
		if (c->family[r->cells[first].recording] != NO_FAMILY)
			c->cells[n++] = r->cells[first];
	if (n)
		qsort_r(c->cells, n, sizeof(*c->cells), cmp_family, c->family);
	for (size_t first = 0; first < n && !err; first = end) {
		uint32_t family = c->family[c->cells[first].recording];

		for (end = first + 1; end < n && c->family[c->cells[end].recording] == family;)
			end++;
		if (c->families[family].n > 1)
			err = compare_cells(r, c, &c->families[family], &c->cells[first],
					    end - first, line_no);
	}
	return err;
}

/* Sets c->which, c->place and the range of each family from c->family. */
static void list_families(const struct ranks *r, struct compared *c)
{
	uint32_t first = 0;

	for (size_t i = 0; i < r->n; i++)
		if (c->family[i] != NO_FAMILY)
			c->families[c->family[i]].n++;
	for (size_t i = 0; i < c->n_families; i++) {
		c->families[i].first = first;
		first += c->families[i].n;
		c->families[i].n = 0;
	}
	for (size_t i = 0; i < r->n; i++)
		if (c->family[i] != NO_FAMILY) {
			struct family *f = &c->families[c->family[i]];

			c->place[i] = f->n;
			c->which[f->first + f->n++] = (uint32_t)i;
		}
}

/* Compares the members of each family: all their memory, then each line. Returns 0 or -ENOMEM. */
static int compare_families(struct ranks *r, struct compared *c)
{
	int err = 0;

	list_families(r, c);
	for (size_t k = 0; k < c->n_families && !err; k++) {
		const struct family *f = &c->families[k];

		c->n = f->n;
		for (size_t i = 0; i < c->n; i++)
			c->values[i] = r->all[c->which[f->first + i]].allocated;
		err = c->n > 1 ? add_outliers(&r->outliers, c, f->first, OUTLIER_BYTES, 0) : 0;
	}
	for (size_t k = 0; k < r->nlines && !err; k++) {
		const struct rank_line *l = &r->lines[k];

		if ((l->row.before_attach && c->no_holders) || l->row.filtered ||
		    l->max - l->min <= OUTLIER_BYTES)
			continue;
		err = compare_line(r, c, l);
	}
	return err;
}

/* Sets minimum, median and maximum of each line. Leaves out workers if there are two other
 * recordings or more: the memory of workers is not comparable. */
static void measure_lines(struct ranks *r, struct compared *c)
{
	bool workers = r->n - r->workers < 2;
	size_t n_all = workers ? r->n : r->n - r->workers;

	for (size_t k = 0; k < r->nlines && n_all; k++) {
		struct rank_line *line = &r->lines[k];
		size_t n = 0;

		for (size_t i = line->first; i < (size_t)line->first + line->n; i++)
			if (workers || !r->all[r->cells[i].recording].worker)
				c->sorted[n++] = r->cells[i].bytes;
		outliers__sort(c->sorted, n);
		line->min = n == n_all ? c->sorted[0] : 0;
		line->max = n ? c->sorted[n - 1] : 0;
		line->median = outliers__median_with_zeros(c->sorted, n_all, n_all - n);
	}
}

static bool has_steps(const struct rank *k)
{
	return !k->worker && k->step_time;
}

/* Finds the numbers of steps that all ranks have, and sets the ranks' step times to the median of
 * these steps. */
static void match_steps(struct ranks *r)
{
	struct step_match *match = &r->match;
	bool job = ranks__one_job(r);
	size_t with_steps = 0;

	*match = (struct step_match){ .by = STEPS_BY_OPTIMIZER, .last = UINT64_MAX };
	for (size_t i = 0; i < r->n; i++) {
		const struct rank *k = &r->all[i];

		if (!has_steps(k))
			continue;
		with_steps++;
		if (match->by == STEPS_BY_TIME)
			continue;
		if (job && narrow_steps(&k->spans, &match->first, &match->last))
			continue;
		match->by = STEPS_BY_TIME;
		if (!job)
			snprintf(match->why, sizeof(match->why),
				 "the recordings are no ranks of one job");
		else if (k->spans.n)
			snprintf(match->why, sizeof(match->why), "no step is in all recordings");
		else
			snprintf(match->why, sizeof(match->why), "%s: %s", k->label, k->no_number);
		match->old_recording = !k->spans.n && k->older;
	}
	if (with_steps < 2)
		*match = (struct step_match){ .by = STEPS_NOT_MATCHED };
	for (size_t i = 0; i < r->n && match->by == STEPS_BY_OPTIMIZER; i++)
		if (has_steps(&r->all[i]))
			r->all[i].step_time = median_span(&r->all[i].spans, match->first,
							  match->last);
}

/* Compares the step times of all ranks: ranks of one job step together, whatever they allocate.
 * Returns 0 or -ENOMEM. */
static int compare_steps(struct ranks *r, struct compared *c)
{
	c->n = 0;
	for (size_t i = 0; i < r->n; i++)
		if (has_steps(&r->all[i])) {
			c->values[c->n] = r->all[i].step_time;
			c->which[c->n++] = (uint32_t)i;
		}
	return c->n ? add_outliers(&r->slow, c, 0, SLOW_NS, 0) : 0;
}

/* Groups ranks that allocate alike, without workers and guests. Returns 0 or -ENOMEM. */
static int make_groups(struct ranks *r)
{
	bool no_holders = has_unnamed_holders(r);
	bool *ignored_lines = calloc(r->nlines + 1, sizeof(*ignored_lines));
	bool *without_group = calloc(r->n + 1, sizeof(*without_group));
	int err = -ENOMEM;

	for (size_t i = 0; i < r->nlines && ignored_lines; i++)
		ignored_lines[i] = r->lines[i].row.filtered ||
				   (r->lines[i].row.before_attach && no_holders);
	for (size_t i = 0; i < r->n && without_group; i++)
		without_group[i] = r->all[i].worker || r->all[i].guest;
	if (ignored_lines && without_group)
		err = rank_groups__make(r->cells, r->ncells, ignored_lines, without_group, r->n,
					&r->groups);
	free(ignored_lines);
	free(without_group);
	return err;
}

/* Compares the memory of processes of a tree that are alike, as families. Returns 0 or -ENOMEM. */
static int compare_tree(struct ranks *r, struct compared *c)
{
	for (size_t i = 0; i < r->tree.n; i++)
		if (is_first_like(r, i))
			make_family(r, c, i);
	return compare_families(r, c);
}

/* Compares the step times of all ranks, and the memory of those in one family: groups that allocate
 * alike. Returns 0 or -ENOMEM. */
static int compare_groups(struct ranks *r, struct compared *c)
{
	int err;

	match_steps(r);
	err = compare_steps(r, c);
	if (err)
		return err;
	c->n_families = r->groups.n;
	for (size_t i = 0; i < r->n; i++)
		if (!r->all[i].worker && !r->all[i].guest)
			c->family[i] = r->groups.all[r->groups.of[i]].family;
	return compare_families(r, c);
}

/* Measures the lines and finds the outliers. Returns 0 or -ENOMEM. */
static int compare_ranks(struct ranks *r)
{
	size_t n = r->n + 1;
	struct compared compared = { .values = calloc(n, 2 * sizeof(*compared.values)),
				     .which = calloc(n, 3 * sizeof(*compared.which)),
				     .families = calloc(n + r->tree.n, sizeof(*compared.families)),
				     .cells = calloc(n, sizeof(*compared.cells)),
				     .no_holders = has_unnamed_holders(r) };
	int err = -ENOMEM;

	if (!compared.values || !compared.which || !compared.families || !compared.cells)
		goto out;
	compared.sorted = compared.values + r->n;
	compared.family = compared.which + n;
	compared.place = compared.family + n;
	memset(compared.family, 0xff, n * sizeof(*compared.family));
	measure_lines(r, &compared);
	/* In a process tree, only processes of the same name and parent do the same work. */
	err = ranks__one_tree(r) ? compare_tree(r, &compared) : compare_groups(r, &compared);
	outliers__order(&r->outliers);
	outliers__order(&r->slow);
out:
	free(compared.values);
	free(compared.which);
	free(compared.families);
	free(compared.cells);
	return err;
}

/* Finds shared devices, and marks guests: their memory is not compared with that of the device's
 * own rank. Returns 0 or -ENOMEM. */
static int find_guests(struct ranks *r)
{
	int err = find_shared(r->all, r->n, &r->shared);

	for (size_t i = 0; i < r->n && !err && r->shared.n; i++)
		r->all[i].guest = r->all[i].ndevices == 1 && r->all[i].neach > 1 &&
				  is_guest(&r->shared, i, r->all[i].devices);
	return err;
}

int ranks__finish(struct ranks *r)
{
	uint64_t sum = 0;
	int err = sort_ranks(r);

	if (err)
		return err;
	err = process_tree__finish(&r->tree);
	if (err)
		return err;
	set_labels(r);
	scope_set__sort(&r->scopes);
	if (ranks__one_job(r)) {
		set_hosts(r);
		err = find_guests(r);
		if (err)
			return err;
	}
	if (ranks__one_tree(r))
		set_tree_labels(r);
	gather_cells(r);
	err = make_groups(r); /* cells number lines in their present order */
	if (err)
		return err;
	if (r->nlines)
		/* from here on, lines find their cells by first and n */
		qsort(r->lines, r->nlines, sizeof(*r->lines), cmp_line);
	for (size_t i = 0; i < r->nlines; i++) {
		sum += r->lines[i].row.bytes;
		r->lines[i].row.cumulative = sum;
		r->kept += !r->lines[i].row.filtered;
	}
	return compare_ranks(r);
}

uint64_t ranks__bytes(const struct ranks *r, const struct rank_line *l, size_t recording)
{
	size_t low = l->first, high = (size_t)l->first + l->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (r->cells[mid].recording == recording)
			return r->cells[mid].bytes;
		if (r->cells[mid].recording < recording)
			low = mid + 1;
		else
			high = mid;
	}
	return 0;
}
