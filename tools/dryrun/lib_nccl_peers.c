// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "lib_nccl.h"
#include "base/array.h"
#include "truth.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP_MAX 65536u
#define RECORD_MAGIC 0x4d54504cu
#define FILE_MAX (16u << 20) /* bytes that one rank may store */
#define PATH_SIZE 4096
#define NOT_HEARD "NCCL: small data from another rank, taken for zeros"

/* ---- one group of calls ---- */

struct op {
	bool sends, filled;
	enum nccl_kind kind;
	int peer;
	void *ptr;
	size_t size;
};

struct group {
	unsigned int depth;
	int ranks, rank; /* of the communicator; -1: several communicators */
	struct op *ops;
	size_t n, cap;
};

static __thread struct group group;

static void remember(const struct comm *c, struct op op)
{
	struct group *g = &group;

	if (g->n == GROUP_MAX)
		return;
	if (array__grow(&g->ops, &g->cap, g->n + 1, sizeof(*g->ops)))
		return;
	if (g->n && (g->ranks != c->ranks || g->rank != c->rank)) {
		g->ranks = g->rank = -1;
	} else if (!g->n) {
		g->ranks = c->ranks;
		g->rank = c->rank;
	}
	g->ops[g->n++] = op;
}

/* Finds a send in this group to the same peer or to all, with the same size: exchanges are assumed
 * symmetric. */
static const struct op *find_send(const struct group *g, const struct op *to)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct op *o = &g->ops[i];

		if (o->sends && o->size == to->size &&
		    (o->peer == to->peer || o->peer == NCCL_TO_ALL))
			return o;
	}
	return NULL;
}

/*
 * A gather at its root receives equal sizes from all other ranks into adjacent places. The gap is
 * the root's own place, which has its data already. Returns that place, as the model for the other
 * ranks' data; NULL: the group is no gather.
 */
static const char *gather_place(const struct group *g)
{
	const char *low = NULL, *high = NULL;
	size_t size = g->n ? g->ops[0].size : 0;

	if (g->ranks < 3 || g->n != (size_t)g->ranks - 1 || size > DRYRUN_SMALL_COPY)
		return NULL;
	for (size_t i = 0; i < g->n; i++) {
		const char *at = g->ops[i].ptr;

		if (g->ops[i].sends || g->ops[i].size != size)
			return NULL;
		low = !low || at < low ? at : low;
		high = at > high ? at : high;
	}
	if (!g->rank)
		low -= size;
	if (g->rank == g->ranks - 1)
		high += size;
	return (size_t)(high - low) == ((size_t)g->ranks - 1) * size ? low + (size_t)g->rank * size
								     : NULL;
}

/*
 * Numbers that this rank sent last, by count: in a pipeline, the shape of its output. Data that
 * comes back has the same shape.
 */
#define NUMBERS_MAX 8

static struct {
	bool known;
	uint64_t numbers[NUMBERS_MAX];
} last_sent[NUMBERS_MAX + 1];
static pthread_mutex_t sent_mutex = PTHREAD_MUTEX_INITIALIZER;

static void note_numbers(const void *from, size_t size)
{
	size_t n = size / sizeof(uint64_t);

	if (n > NUMBERS_MAX || size % sizeof(uint64_t))
		return;
	pthread_mutex_lock(&sent_mutex);
	dryrun__copy(last_sent[n].numbers, from, size);
	last_sent[n].known = true;
	pthread_mutex_unlock(&sent_mutex);
}

static bool same_numbers(void *to, size_t size)
{
	size_t n = size / sizeof(uint64_t);
	bool known;

	if (n > NUMBERS_MAX || size % sizeof(uint64_t))
		return false;
	pthread_mutex_lock(&sent_mutex);
	known = last_sent[n].known;
	if (known)
		dryrun__copy(to, last_sent[n].numbers, size);
	pthread_mutex_unlock(&sent_mutex);
	return known;
}

void nccl__group_start(void)
{
	if (!group.depth++)
		group.n = 0;
}

void nccl__group_end(void)
{
	struct group *g = &group;
	const char *own;

	if (!g->depth || --g->depth)
		return;
	own = gather_place(g);
	for (size_t i = 0; i < g->n; i++) {
		const struct op *o = &g->ops[i], *same;

		if (o->sends || o->filled || o->size > DRYRUN_SMALL_COPY)
			continue;
		same = find_send(g, o);
		if (same && same->ptr != o->ptr)
			dryrun__copy(o->ptr, same->ptr, o->size);
		else if (own)
			dryrun__copy(o->ptr, own, o->size);
		else if (!same && (o->kind != NCCL_NUMBERS || !same_numbers(o->ptr, o->size)))
			dryrun__unmodelled(NOT_HEARD);
	}
	g->n = 0;
}

/* ---- files for the other ranks ---- */

struct record {
	uint32_t magic, size;
	int32_t ranks, from, to;
	uint32_t zeros; /* all bytes are 0 and left out of the file */
};

struct left { /* data of another rank */
	struct left *next;
	struct record head;
	bool used;
	unsigned char bytes[];
};

struct file {
	struct left *first, **end;
	bool read;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	const char *folder; /* NULL: none */
	int rank, world, fd;
	size_t written;
	off_t size_at; /* file offset of the last broadcast 8-byte number, if unknown; 0: none */
	struct file *files; /* by rank */
} peers = { .fd = -1 };

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);
	int n = text ? atoi(text) : otherwise;

	return n >= 0 && n <= 1 << 20 ? n : otherwise;
}

static void begin(void)
{
	peers.folder = getenv("MEMTRACE_DRYRUN_PEERS");
	if (!peers.folder || !*peers.folder) {
		peers.folder = NULL;
		return;
	}
	peers.rank = number("RANK", 0);
	peers.world = number("WORLD_SIZE", 1);
	peers.files = calloc((size_t)peers.world + 1, sizeof(*peers.files));
	if (!peers.files)
		peers.folder = NULL;
}

static bool has_folder(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin);
	return peers.folder;
}

static void path_of(char *path, int rank)
{
	snprintf(path, PATH_SIZE, "%s/%d", peers.folder, rank);
}

static bool all_zero(const unsigned char *bytes, size_t n)
{
	return !n || (!bytes[0] && !memcmp(bytes, bytes + 1, n - 1));
}

/*
 * PyTorch broadcasts an object as its size and then its bytes. The size is a kernel's result
 * (torch.cat) and so unknown here. The length of the bytes then corrects the size in the file.
 */
static void correct_size(bool is_number, bool is_bytes, const struct record *head)
{
	uint64_t size = head->size;

	if (is_bytes && peers.size_at && pwrite(peers.fd, &size, sizeof(size), peers.size_at) < 0)
		dryrun__log("MEMTRACE_DRYRUN_PEERS: cannot write");
	peers.size_at = is_number ? (off_t)(peers.written + sizeof(*head)) : 0;
}

void nccl__send(const struct comm *c, int to, const void *from, size_t size, enum nccl_kind kind)
{
	unsigned char bytes[sizeof(struct record) + DRYRUN_SMALL_COPY];
	struct record *head = (struct record *)bytes;
	bool is_number, zero;
	char path[PATH_SIZE];
	size_t n;

	if (group.depth)
		remember(c, (struct op){ .sends = true,
					 .peer = to,
					 .ptr = (void *)(uintptr_t)from,
					 .size = size });
	if (!from || !size || size > DRYRUN_SMALL_COPY)
		return;
	if (kind == NCCL_NUMBERS && to != NCCL_TO_ALL)
		note_numbers(from, size);
	if (!has_folder())
		return;
	*head = (struct record){ RECORD_MAGIC, (uint32_t)size, c->ranks, c->rank, to, 0 };
	dryrun__copy(head + 1, from, size);
	zero = all_zero((unsigned char *)(head + 1), size);
	is_number = zero && kind == NCCL_NUMBERS && size == sizeof(uint64_t) && to == NCCL_TO_ALL;
	head->zeros = zero && !is_number;
	n = sizeof(*head) + (head->zeros ? 0 : size);
	pthread_mutex_lock(&mutex);
	if (peers.fd < 0) {
		path_of(path, peers.rank);
		peers.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	}
	if (peers.fd >= 0 && peers.written + n <= FILE_MAX) {
		correct_size(is_number, kind == NCCL_BYTES && to == NCCL_TO_ALL, head);
		if (write(peers.fd, bytes, n) == (ssize_t)n)
			peers.written += n;
	}
	pthread_mutex_unlock(&mutex);
}

/* Reads all data of a rank. A truncated file is valid up to its last whole record. */
static void read_file(struct file *f, int rank)
{
	char path[PATH_SIZE];
	struct record head;
	FILE *in;

	f->read = true;
	f->end = &f->first;
	path_of(path, rank);
	in = fopen(path, "re");
	while (in && fread(&head, sizeof(head), 1, in) == 1) {
		struct left *l;

		if (head.magic != RECORD_MAGIC || head.size > DRYRUN_SMALL_COPY)
			break;
		l = calloc(1, sizeof(*l) + head.size);
		if (!l || (!head.zeros && fread(l->bytes, head.size, 1, in) != 1)) {
			free(l);
			break;
		}
		l->head = head;
		*f->end = l;
		f->end = &l->next;
	}
	if (in)
		fclose(in);
}

/* The next data of that rank in the communicator. After the last, repeats the last: loops
 * continue. */
static const struct left *next_of(struct file *f, const struct comm *c, int from, size_t size)
{
	const struct left *last = NULL;

	for (struct left *l = f->first; l; l = l->next) {
		if (l->head.size != size || l->head.from != from || l->head.ranks != c->ranks ||
		    (l->head.to != c->rank && l->head.to != NCCL_TO_ALL))
			continue;
		last = l;
		if (!l->used) {
			l->used = true;
			break;
		}
	}
	return last;
}

/*
 * Finds data by sender. In the world communicator, the rank names the file. In others the global
 * rank is unknown: uses the nearest rank on that side with data of this kind, as in pipelines and
 * meshes.
 */
static const struct left *find(const struct comm *c, int from, size_t size)
{
	int step = from < c->rank ? -1 : 1;
	const struct left *l = NULL;

	for (int i = c->ranks == peers.world ? from : peers.rank + step;
	     i >= 0 && i < peers.world && !l; i += step) {
		struct file *f = &peers.files[i];

		if (!f->read)
			read_file(f, i);
		l = next_of(f, c, from, size);
		if (c->ranks == peers.world)
			break;
	}
	return l;
}

void nccl__receive(const struct comm *c, int from, void *to, size_t size, enum nccl_kind kind)
{
	const struct left *l = NULL;

	if (size && size <= DRYRUN_SMALL_COPY && has_folder() && from != c->rank) {
		pthread_mutex_lock(&mutex);
		l = find(c, from, size);
		if (l)
			dryrun__copy(to, l->bytes, size);
		pthread_mutex_unlock(&mutex);
	}
	/* A number is an object's size, which kernels sum up. The object's bytes end that. */
	if (l && kind == NCCL_NUMBERS)
		nccl__gathered(to, size, 2);
	if (group.depth)
		remember(
			c,
			(struct op){
				.filled = l, .kind = kind, .peer = from, .ptr = to, .size = size });
	else if (!l && size <= DRYRUN_SMALL_COPY &&
		 (kind != NCCL_NUMBERS || !same_numbers(to, size)))
		dryrun__unmodelled(NOT_HEARD);
}

/* ---- numbers gathered from all ranks ---- */

void nccl__gathered(const void *at, size_t size, unsigned int reads)
{
	uint64_t numbers[DRYRUN_SMALL_COPY / sizeof(uint64_t)], sum = 0;

	dryrun__copy(numbers, at, size);
	for (size_t i = 0; i < size / sizeof(*numbers); i++)
		sum += numbers[i];
	truth__set_next(sum, reads);
}

void nccl__not_gathered(void)
{
	truth__set_next(0, 0);
}

/* ---- how many ranks are split off ---- */

static __thread int split_size;

int nccl__split_size(void)
{
	return split_size;
}

#ifdef __x86_64__
/*
 * PyTorch's process group knows the number of ranks that it splits off, but does not pass it to
 * ncclCommSplit(). The virtual method is bound by symbol, so this definition replaces it and calls
 * the original. The first argument is the place of the result.
 */
struct ranks { /* std::vector<int> */
	const int *begin, *end, *limit;
};
typedef void *split_t(void *ret, void *self, const void *store, const struct ranks *ranks,
		      const void *options);

static void *split(const char *name, void *ret, void *self, const void *store,
		   const struct ranks *ranks, const void *options)
{
	void *library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
	split_t *real = library ? (split_t *)(uintptr_t)dlsym(library, name) : NULL;
	int before = split_size;

	if (library)
		dlclose(library);
	if (!real) {
		dryrun__log("%s is not in libtorch_cuda.so", name);
		abort();
	}
	split_size = ranks->end > ranks->begin ? (int)(ranks->end - ranks->begin) : 0;
	ret = real(ret, self, store, ranks, options);
	split_size = before;
	return ret;
}

#define SPLIT(name)                                                                                \
	API(void *, name, void *ret, void *self, const void *store, const struct ranks *ranks,     \
	    const void *options)                                                                   \
	{                                                                                          \
		return split(#name, ret, self, store, ranks, options);                             \
	}

SPLIT(_ZN4c10d16ProcessGroupNCCL5splitERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEERKSt6vectorIiSaIiEERKNS2_INS_7Backend7OptionsENS5_ISG_EEEE)
SPLIT(_ZN4c10d5nccl216ProcessGroupNCCL5splitERKN3c1013intrusive_ptrINS_5StoreENS2_6detail34intrusive_target_default_null_typeIS4_EEEERKSt6vectorIiSaIiEERKNS3_INS_7Backend7OptionsENS6_ISH_EEEE)
#endif
