/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/records.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/files.h"
#include "record/stream.h"
#include "record/stream/limits.h"

#define FAILED UINT64_MAX
#define TEXT_BYTES (256u << 20) /* most bytes of all texts */
#define JOINED 512		/* bytes of joined texts, with the NUL */

/* Returns FAILED with errno. The make_ and take_ functions below return it, too. */
static value fail(int err)
{
	errno = err;
	return FAILED;
}

/* ---- texts ---- */

/* The keys that matter, in the order of their text numbers. */
enum key {
	KEY_ACTION,
	KEY_ADDR,
	KEY_ADDRESS,
	KEY_SIZE,
	KEY_REQUESTED_SIZE,
	KEY_REAL_SIZE,
	KEY_STREAM,
	KEY_TIME_US,
	KEY_DEVICE_FREE,
	KEY_FRAMES,
	KEY_POOL_ID,
	KEY_SEGMENT_POOL_ID,
	KEY_STATE,
	KEY_HISTORY,
	KEY_TOTAL_SIZE,
	KEY_DEVICE,
	KEY_SEGMENT_TYPE,
	KEY_IS_EXPANDABLE,
	KEY_BLOCKS,
	KEY_FILENAME,
	KEY_LINE,
	KEY_NAME,
	KEY_STAGE,
	KEY_SEGMENTS,
	KEY_DEVICE_TRACES,
	KEY_HOST_SEGMENTS,
	KEY_HOST_TRACES,
	KEY_EXTERNAL_ANNOTATIONS,
	KEY_EXPANDABLE_SEGMENTS,
	KEY_MAX_SPLIT_SIZE,
	KEY_DIVISIONS,
	KEY_CONF,
	KEY_USER_METADATA,
	KEY_INTERNAL_METADATA,
	KEY_COMPILE_CONTEXT,
	/* written by our own exports: export/formats/snapshot.c */
	KEY_AUTOGRAD_NODE,
	KEY_AUTOGRAD_FORWARD,
	KEY_ROLE,
	KEY_ROLE_INFERRED,
	KEY_SCOPE,
	KEY_NR,
};

static const char *const key_texts[KEY_NR] = {
	[KEY_ACTION] = "action",
	[KEY_ADDR] = "addr",
	[KEY_ADDRESS] = "address",
	[KEY_SIZE] = "size",
	[KEY_REQUESTED_SIZE] = "requested_size",
	[KEY_REAL_SIZE] = "real_size",
	[KEY_STREAM] = "stream",
	[KEY_TIME_US] = "time_us",
	[KEY_DEVICE_FREE] = "device_free",
	[KEY_FRAMES] = "frames",
	[KEY_POOL_ID] = "pool_id",
	[KEY_SEGMENT_POOL_ID] = "segment_pool_id",
	[KEY_STATE] = "state",
	[KEY_HISTORY] = "history",
	[KEY_TOTAL_SIZE] = "total_size",
	[KEY_DEVICE] = "device",
	[KEY_SEGMENT_TYPE] = "segment_type",
	[KEY_IS_EXPANDABLE] = "is_expandable",
	[KEY_BLOCKS] = "blocks",
	[KEY_FILENAME] = "filename",
	[KEY_LINE] = "line",
	[KEY_NAME] = "name",
	[KEY_STAGE] = "stage",
	[KEY_SEGMENTS] = "segments",
	[KEY_DEVICE_TRACES] = "device_traces",
	[KEY_HOST_SEGMENTS] = "host_segments",
	[KEY_HOST_TRACES] = "host_traces",
	[KEY_EXTERNAL_ANNOTATIONS] = "external_annotations",
	[KEY_EXPANDABLE_SEGMENTS] = "expandable_segments",
	[KEY_MAX_SPLIT_SIZE] = "max_split_size",
	[KEY_DIVISIONS] = "roundup_power2_divisions",
	[KEY_CONF] = "PYTORCH_CUDA_ALLOC_CONF",
	[KEY_USER_METADATA] = "user_metadata",
	[KEY_INTERNAL_METADATA] = "internal_metadata",
	[KEY_COMPILE_CONTEXT] = "compile_context",
	[KEY_AUTOGRAD_NODE] = "autograd_node",
	[KEY_AUTOGRAD_FORWARD] = "autograd_forward",
	[KEY_ROLE] = "role",
	[KEY_ROLE_INFERRED] = "role_inferred",
	[KEY_SCOPE] = "scope",
};

struct texts {
	struct map64 *at; /* hash -> number; on a collision, the next free hash */
	struct {
		char *bytes; /* with a NUL */
		size_t len;
		uint32_t string; /* its number in the dict; 0: not in it so far, or empty */
	} * all;
	size_t n, cap;
	size_t bytes;
};

/* Sets *ret to the number of a text, which is added on first use. Returns 0, -ENOSPC or -ENOMEM. */
static int texts__number(struct texts *t, const void *bytes, size_t len, uint64_t *ret)
{
	uint64_t key = hash__bytes(hash__seed(), bytes, len);
	char *copy;

	for (; map64__get(t->at, key, ret); key++)
		if (t->all[*ret].len == len && !memcmp(t->all[*ret].bytes, bytes, len))
			return 0;
	if (len > TEXT_BYTES - t->bytes)
		return -ENOSPC;
	copy = malloc(len + 1);
	if (!copy || array__grow(&t->all, &t->cap, t->n + 1, sizeof(*t->all)) ||
	    map64__set(t->at, key, t->n)) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, bytes, len);
	copy[len] = '\0';
	t->bytes += len;
	t->all[t->n].bytes = copy;
	t->all[t->n].len = len;
	t->all[t->n].string = 0;
	*ret = t->n++;
	return 0;
}

static void texts__free(struct texts *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++)
		free(t->all[i].bytes);
	free(t->all);
	map64__free(t->at);
	free(t);
}

value records__text(struct records *r, const void *bytes, size_t len)
{
	uint64_t number;
	int err = texts__number(r->texts, bytes, len, &number);

	return err ? fail(-err) : value__of(VALUE_TEXT, number);
}

const char *records__string(const struct records *r, value v)
{
	return value__kind(v) == VALUE_TEXT ? r->texts->all[value__number(v)].bytes : "";
}

/* The string number of a text in the dict; 0: no text; UINT32_MAX with errno: it has no room. */
static uint32_t string_of(struct records *r, value v)
{
	uint32_t ret;
	uint64_t i;

	if (value__kind(v) != VALUE_TEXT)
		return 0;
	i = value__number(v);
	if (r->texts->all[i].string)
		return r->texts->all[i].string;
	ret = dict__string(r->dict, r->texts->all[i].bytes, r->texts->all[i].len);
	if (ret != UINT32_MAX)
		r->texts->all[i].string = ret;
	return ret;
}

uint32_t records__join(struct records *r, uint32_t a, uint32_t b)
{
	char joined[JOINED];
	int n;

	if (!a || !b || a == b || a == UINT32_MAX || b == UINT32_MAX)
		return a > b ? a : b;
	/* Texts may be long: no more is read of them than has room. */
	n = snprintf(joined, sizeof(joined), "%.*s, %.*s", JOINED, dict__str(r->dict, a), JOINED,
		     dict__str(r->dict, b));
	return (size_t)n < sizeof(joined) ? dict__string(r->dict, joined, (size_t)n) : b;
}

/* ---- numbers ---- */

value records__unsigned(struct records *r, uint64_t i)
{
	if (i < UINT64_C(1) << 58)
		return value__of(VALUE_INT, i);
	if (array__grow(&r->bigs, &r->cap_bigs, r->n_bigs + 1, sizeof(*r->bigs)))
		return fail(ENOMEM);
	r->bigs[r->n_bigs] = i;
	return value__of(VALUE_BIG, r->n_bigs++);
}

value records__int(struct records *r, int64_t i)
{
	return records__unsigned(r, (uint64_t)i);
}

uint64_t records__number(const struct records *r, value v)
{
	switch (value__kind(v)) {
	case VALUE_BOOL:
	case VALUE_INT:
		return value__number(v);
	case VALUE_BIG:
		return r->bigs[value__number(v)];
	default:
		return 0;
	}
}

static bool is_number(value v)
{
	return value__kind(v) == VALUE_INT || value__kind(v) == VALUE_BIG;
}

#define PAIRS_COMPARED 8 /* the last pairs, among which an equal one is looked for */

value records__pair(struct records *r, value a, value b)
{
	uint64_t x = records__number(r, a);
	uint64_t y = records__number(r, b);

	if (!is_number(a) || !is_number(b))
		return value__of(VALUE_OTHER, 0);
	for (size_t back = 1; back <= PAIRS_COMPARED && back <= r->n_pairs; back++) {
		size_t i = r->n_pairs - back;

		if (r->pairs[i].a == x && r->pairs[i].b == y)
			return value__of(VALUE_PAIR, i);
	}
	if (r->n_pairs == UINT32_MAX)
		return fail(ENOSPC);
	if (array__grow(&r->pairs, &r->cap_pairs, r->n_pairs + 1, sizeof(*r->pairs)))
		return fail(ENOMEM);
	r->pairs[r->n_pairs].a = x;
	r->pairs[r->n_pairs].b = y;
	return value__of(VALUE_PAIR, r->n_pairs++);
}

/* ---- frames and stacks ---- */

/* A frame, with its meaning. */
struct frame_record {
	uint64_t file, func, line; /* numbers of texts; the line as it is in the file */
	uint32_t loc;		   /* location number in the dict; 0: the frame is left out */
	bool calls_module; /* torch/nn/modules/module.py: its callee is the module's forward */
	bool optimizer;
	/* String numbers. A forward has the class that stands for the module. Calls in our own
	 * exports name the module: they have its class and its dotted name. */
	uint32_t cls, name;
	uint32_t node_cls; /* string number: class of the autograd node that this function runs */
	bool threadless;   /* a note that the thread had no Python frame */
	bool unnamed;	   /* compiled code whose function is not known */
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s);
	size_t m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static const char *base_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? slash + 1 : file;
}

/* A library, or CPython's executable. PyTorch 2.15 gives them in place of a source file. */
static bool is_binary(const char *file)
{
	const char *so = strstr(file, ".so");

	if (ends_with(file, ".py"))
		return false;
	return (so && (!so[3] || so[3] == '.')) || text__starts(base_of(file), "python");
}

static bool is_source(const char *file)
{
	static const char *const suffixes[] = { ".cpp", ".cc",	".cxx", ".c",  ".S",
						".h",	".hpp", ".cu",	".cuh" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (ends_with(file, suffixes[i]))
			return true;
	return false;
}

/* The traces have frames of Python and of compiled code, and do not say which is which. */
static bool is_compiled(const char *file, const char *func)
{
	if (ends_with(file, ".py") || *file == '<')
		return false;
	return !*file || !strcmp(file, "??") || is_source(file) || is_binary(file) ||
	       strstr(func, "::");
}

/* Sources and binaries of CPython. */
static bool is_interpreter(const char *file)
{
	static const char *const folders[] = { "/Python/", "/Objects/", "/Modules/", "/Include/" };

	if (is_binary(file))
		return text__starts(base_of(file), "libpython") ||
		       text__starts(base_of(file), "python");
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (strstr(file, folders[i]))
			return ends_with(file, ".c") || ends_with(file, ".h");
	return false;
}

/* Frames of the recorder itself, of CPython's interpreter and of the C library's start. */
static bool is_noise(const char *file, const char *func)
{
	static const char *const starts[] = {
		"torch::unwind::",
		"torch::CapturedTraceback::gather",
		"torch::cuda::(anonymous namespace)::gather",
		"unwind::",
		"Py",
		"_Py",
		"__libc_start",
		"_start",
		"start_thread",
		"clone",
		"__clone",
	};

	for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
		if (text__starts(func, starts[i]))
			return true;
	return is_interpreter(file);
}

/* Our own exports have a frame with a note where a stack is missing: export/formats/frames.c. */
static bool is_note(const char *file, const char *func)
{
	return !strcmp(file, "??") && *func == '[' && ends_with(func, "]");
}

/* An autograd node is a frame of our own exports, too; autograd_node has it. */
static bool is_node(const struct frame_record *l, const char *file)
{
	return !strcmp(file, "autograd") && !l->line;
}

/* Names the library of a function, where the path of the file is not known because there is no
 * debug information. A name may begin with the type of what it returns. */
static const char *library_of(const char *file, const char *func)
{
	static const char *const starts[] = { "torch::", "at::",     "c10::",
					      "c10d::",	 "caffe2::", "THP" };

	if (text__starts(func, "std::"))
		return "libstdc++.so";
	for (const char *s = func; s; s = strchr(s, ' ')) {
		s += *s == ' ';
		for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
			if (text__starts(s, starts[i]))
				return "libtorch.so";
	}
	return *file ? file : "??";
}

/* Finds the class of an autograd node in the name of its function:
 * "torch::autograd::generated::AddmmBackward0::apply(...)". */
static bool node_class(const char *func, const char **cls, size_t *len)
{
	const char *end = strstr(func, "::apply("), *s;

	if (!text__starts(func, "torch::autograd::") || !end)
		return false;
	for (s = end; s > func && s[-1] != ':'; s--)
		;
	*cls = s;
	*len = (size_t)(end - s);
	return *len > 0;
}

/* Finds the text that stands for the class of the module with this forward. A qualified name has
 * the class, "f.<locals>.Net.forward". PyTorch's own frames have plain names: then it is the file's
 * name without ".py". */
static bool forward_class(const char *file, const char *func, const char **cls, size_t *len)
{
	const char *end = strrchr(func, '.');
	const char *s;

	if (!strcmp(func, "forward")) {
		*cls = base_of(file);
		*len = strcspn(*cls, ".");
		return *len > 0;
	}
	if (!end || strcmp(end, ".forward") != 0)
		return false;
	for (s = end; s > func && s[-1] != '.'; s--)
		;
	*cls = s;
	*len = (size_t)(end - s);
	return *len > 0;
}

/* Reads the module in the name of a function of our own exports: "NAME [blocks.0 (Block)]". Returns
 * the length of NAME; 0: there is no module. */
static size_t named_module(struct records *r, const char *func, struct frame_record *l)
{
	const char *at = strstr(func, " [");
	const char *cls = at ? strstr(at, " (") : NULL;
	size_t n = strlen(func);

	if (!cls || n < 2 || strcmp(func + n - 2, ")]") != 0)
		return 0;
	l->name = dict__string(r->dict, at + 2, (size_t)(cls - at - 2));
	l->cls = dict__string(r->dict, cls + 2, n - 2 - (size_t)(cls + 2 - func));
	return (size_t)(at - func);
}

/* Sets what the frame says. Returns 0 or -errno. */
static int describe_frame(struct records *r, struct frame_record *l)
{
	const char *file = r->texts->all[l->file].bytes, *func = r->texts->all[l->func].bytes, *cls;
	struct dict_loc loc = { .line = l->line < 1u << 31 ? (uint32_t)l->line : 0 };
	bool compiled = is_compiled(file, func);
	size_t len;

	l->threadless = is_note(file, func) && strstr(func, "backward") != NULL;
	if ((compiled && is_noise(file, func)) || is_note(file, func) || is_node(l, file))
		return 0;
	l->unnamed = compiled && !strcmp(func, "??");
	/* In a binary, the number is that of a byte. */
	if (compiled && is_binary(file))
		loc.line = 0;
	if (compiled && !strchr(file, '/'))
		file = library_of(file, func);
	len = named_module(r, func, l);
	l->optimizer = files__after_dir(file, "torch/optim/") != NULL;
	l->calls_module = files__is(file, "torch/nn/modules/module.py") &&
			  (l->cls || ends_with(func, "_call_impl"));
	loc.file = dict__string(r->dict, file, strlen(file));
	loc.func = dict__string(r->dict, func, len ?: strlen(func));
	if (!l->calls_module && forward_class(file, func, &cls, &len))
		l->cls = dict__string(r->dict, cls, len);
	if (node_class(func, &cls, &len))
		l->node_cls = dict__string(r->dict, cls, len);
	if (loc.file == UINT32_MAX || loc.func == UINT32_MAX || l->name == UINT32_MAX ||
	    l->cls == UINT32_MAX || l->node_cls == UINT32_MAX)
		return -errno;
	l->loc = compiled ? dict__native_loc(r->dict, loc) : dict__loc(r->dict, loc);
	return l->loc == UINT32_MAX ? -errno : 0;
}

/* Returns the frame of a function, which is added on first use. */
static value make_frame(struct records *r, value file, value func, uint64_t line)
{
	struct frame_record l = { .file = value__number(file),
				  .func = value__number(func),
				  .line = line };
	uint64_t key, i;
	int err;

	if (value__kind(file) != VALUE_TEXT || value__kind(func) != VALUE_TEXT)
		return value__of(VALUE_FRAME, 0);
	/* The key is a hash; another frame with the same one has the next free key. */
	for (key = hash__bytes(hash__seed(), &l, offsetof(struct frame_record, loc));
	     map64__get(r->frame_at, key, &i); key++)
		if (!memcmp(&r->frames[i], &l, offsetof(struct frame_record, loc)))
			return value__of(VALUE_FRAME, i);
	err = describe_frame(r, &l);
	if (err)
		return fail(-err);
	if (r->n_frames == UINT32_MAX)
		return fail(ENOSPC);
	if (array__grow(&r->frames, &r->cap_frames, r->n_frames + 1, sizeof(*r->frames)) ||
	    map64__set(r->frame_at, key, r->n_frames))
		return fail(ENOMEM);
	r->frames[r->n_frames] = l;
	return value__of(VALUE_FRAME, r->n_frames++);
}

/* ---- modules ---- */

#define WRAPPERS_MOST 16 /* frames from a module's call to its forward */

/* The classes of the modules that are being called, outermost first. */
struct path {
	char name[1024]; /* below the root, with dots */
	size_t len;
	uint32_t root;
};

/* Enters a module of the class. name: its dotted name; 0: not known. Returns its number in the
 * dict, or UINT32_MAX. */
static uint32_t path__enter(struct records *r, struct path *p, uint32_t cls, uint32_t name)
{
	const char *text = dict__str(r->dict, cls);
	struct dict_module m = { .cls = cls, .name = name };

	if (!p->root)
		p->root = cls;
	else if (p->len + strlen(text) + 2 < sizeof(p->name))
		p->len += (size_t)snprintf(p->name + p->len, sizeof(p->name) - p->len, "%s%s",
					   p->len ? "." : "", text);
	m.root = p->root;
	if (!name)
		m.name = dict__string(r->dict, p->name, p->len);
	return m.name == UINT32_MAX ? m.name : dict__module(r->dict, m);
}

/* The class of the module that frame i calls: its forward is the next one, which decorators may
 * wrap. 0: none. */
static uint32_t called_class(const struct records *r, const uint32_t *numbers, size_t i)
{
	size_t end = i > WRAPPERS_MOST ? i - WRAPPERS_MOST : 0;

	while (i-- > end) {
		const struct frame_record *f = &r->frames[numbers[i]];

		if (f->calls_module)
			return 0;
		if (f->cls)
			return f->cls;
	}
	return 0;
}

/* Sets the modules of the frames: those of nn.Module's call. The snapshot has no names of modules,
 * so that the classes stand for them. numbers: of the frame records. Returns 0 or -errno. */
static int name_modules(struct records *r, struct dict_frame *frames, const uint32_t *numbers,
			size_t n)
{
	struct path p = { .root = 0 };

	for (size_t i = n; i-- > 0;) {
		const struct frame_record *call = &r->frames[numbers[i]];
		uint32_t cls;

		if (!call->calls_module)
			continue;
		cls = call->cls ?: called_class(r, numbers, i);
		if (!cls)
			continue;
		frames[i].module = path__enter(r, &p, cls, call->name);
		if (frames[i].module == UINT32_MAX)
			return -errno;
	}
	return 0;
}

/* Remembers whether a stack is in an optimizer's step, and its innermost autograd node. Returns 0
 * or -errno. */
static int note_stack(struct records *r, uint32_t stack, const uint32_t *numbers, size_t n)
{
	struct dict_node node = { .cls = 0 };
	uint32_t number;

	if (array__grow_zero(&r->nodes, &r->n_nodes, (size_t)stack + 1, sizeof(*r->nodes)) ||
	    array__grow_zero(&r->optimizer, &r->n_optimizer, (size_t)stack + 1,
			     sizeof(*r->optimizer)))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct frame_record *l = &r->frames[numbers[i]];

		r->optimizer[stack] |= l->optimizer;
		if (l->node_cls && !node.cls)
			node.cls = l->node_cls;
	}
	if (!node.cls || r->nodes[stack])
		return 0;
	number = dict__node(r->dict, node);
	if (number == UINT32_MAX)
		return -errno;
	r->nodes[stack] = number;
	return 0;
}

static bool has_named(const struct records *r, const struct value_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct frame_record *f = &r->frames[value__number(value_list__at(l, i))];

		if (f->loc && !f->unnamed)
			return true;
	}
	return false;
}

/* A list of frames, innermost first. Functions without a name are only in stacks that have no other
 * frame. */
static value make_stack(struct records *r, const struct value_list *l)
{
	struct dict_frame frames[DICT_MAX_STACK_FRAMES];
	uint32_t numbers[DICT_MAX_STACK_FRAMES], n = 0, stack;
	bool cut = false, threadless = false, named = has_named(r, l);
	int err;

	for (size_t i = 0; i < l->n; i++) {
		uint32_t number = (uint32_t)value__number(value_list__at(l, i));
		uint32_t loc = named && r->frames[number].unnamed ? 0 : r->frames[number].loc;

		threadless |= r->frames[number].threadless;
		cut |= loc && n == DICT_MAX_STACK_FRAMES;
		if (!loc || n == DICT_MAX_STACK_FRAMES)
			continue;
		numbers[n] = number;
		frames[n++] = (struct dict_frame){ .loc = loc };
	}
	if (!n)
		return value__of(threadless ? VALUE_EMPTY : VALUE_NONE, 0);
	err = name_modules(r, frames, numbers, n);
	if (err)
		return fail(-err);
	stack = dict__stack(r->dict, frames, n, cut ? MT_WALK_TRUNCATED : MT_WALK_OK);
	if (stack == UINT32_MAX)
		return fail(errno);
	err = note_stack(r, stack, numbers, n);
	return err ? fail(-err) : value__of(VALUE_STACK, stack);
}

/* ---- dicts ---- */

/* The values of a dict by key. */
struct draft {
	value at[KEY_NR];
	uint64_t has; /* bits 1 << enum key */
};
_Static_assert(KEY_NR <= 64, "the keys fit into draft.has");

/* True if the dict has the key. */
static bool has(const struct draft *d, enum key k)
{
	return d->has & UINT64_C(1) << k;
}

/* The value at a key; VALUE_NONE: none. */
static value value_at(const struct draft *d, enum key k)
{
	return has(d, k) ? d->at[k] : value__of(VALUE_NONE, 0);
}

/* The number at a key; 0: none. */
static uint64_t number_at(const struct records *r, const struct draft *d, enum key k)
{
	return has(d, k) ? records__number(r, d->at[k]) : 0;
}

/* The stack of the dict; 0: none. */
static uint32_t stack_at(const struct draft *d)
{
	value v = d->at[KEY_FRAMES];

	return has(d, KEY_FRAMES) && value__kind(v) == VALUE_STACK ? (uint32_t)value__number(v) : 0;
}

/* True if the thread had no Python frame. */
static bool no_frames(const struct draft *d)
{
	return has(d, KEY_FRAMES) && value__kind(d->at[KEY_FRAMES]) == VALUE_EMPTY;
}

/* The number of the pool at a key, + 1; 0: none. */
static uint32_t pool_at(const struct draft *d, enum key k)
{
	return has(d, k) && value__kind(d->at[k]) == VALUE_PAIR
		       ? (uint32_t)value__number(d->at[k]) + 1
		       : 0;
}

/* The texts of the dict, joined. As string_of(). */
static uint32_t metadata_at(struct records *r, const struct draft *d)
{
	static const enum key keys[] = { KEY_USER_METADATA, KEY_INTERNAL_METADATA,
					 KEY_COMPILE_CONTEXT };
	uint32_t joined = 0;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		value v = value_at(d, keys[i]);

		/* PyTorch writes "N/A" for code that is not compiled, and our exports a scope. */
		if (!strcmp(records__string(r, v), "N/A") ||
		    (keys[i] == KEY_USER_METADATA && has(d, KEY_SCOPE) &&
		     !strcmp(records__string(r, v), records__string(r, value_at(d, KEY_SCOPE)))))
			continue;
		joined = records__join(r, joined, string_of(r, v));
	}
	return joined;
}

/* The number of the autograd node in the dict; 0: none; UINT32_MAX with errno: it has no room. */
static uint32_t node_at(struct records *r, const struct draft *d)
{
	struct dict_node node = { .cls = string_of(r, value_at(d, KEY_AUTOGRAD_NODE)) };

	if (!node.cls || node.cls == UINT32_MAX)
		return node.cls;
	if (number_at(r, d, KEY_AUTOGRAD_FORWARD))
		node.stack = stack_at(d);
	return dict__node(r->dict, node);
}

/* Adds a zeroed record to an array of r, and returns it. NULL: no memory. */
#define ADD(r, array)                                                                              \
	(array__grow(&(r)->array, &(r)->cap_##array, (r)->n_##array + 1, sizeof(*(r)->array))      \
		 ? NULL                                                                            \
		 : memset(&(r)->array[(r)->n_##array++], 0, sizeof(*(r)->array)))

/* The action with this name; ACTION_OTHER: none. */
static enum snapshot_action action_of(const char *s)
{
	static const char *const names[] = {
		[ACTION_ALLOC] = "alloc",
		[ACTION_FREE_REQUESTED] = "free_requested",
		[ACTION_FREE_COMPLETED] = "free_completed",
		[ACTION_SEGMENT_ALLOC] = "segment_alloc",
		[ACTION_SEGMENT_FREE] = "segment_free",
		[ACTION_SEGMENT_MAP] = "segment_map",
		[ACTION_SEGMENT_UNMAP] = "segment_unmap",
		[ACTION_SNAPSHOT] = "snapshot",
		[ACTION_OOM] = "oom",
		[ACTION_ANNOTATE] = "annotate",
	};

	for (enum snapshot_action a = ACTION_ALLOC; a < ACTION_OTHER; a++)
		if (!strcmp(names[a], s))
			return a;
	return ACTION_OTHER;
}

static value make_entry(struct records *r, const struct draft *d)
{
	struct snapshot_entry *e = ADD(r, entries);
	enum key addr = has(d, KEY_DEVICE_FREE) ? KEY_DEVICE_FREE : KEY_ADDR;

	if (!e)
		return fail(ENOMEM);
	e->action = action_of(records__string(r, d->at[KEY_ACTION]));
	e->addr = number_at(r, d, addr);
	/* Without the driver's figure, what was left is not known. */
	if (e->action == ACTION_OOM && !has(d, KEY_DEVICE_FREE))
		e->addr = UINT64_MAX;
	e->size = number_at(r, d, KEY_SIZE);
	e->stream = number_at(r, d, KEY_STREAM);
	e->time = number_at(r, d, KEY_TIME_US);
	e->stack = stack_at(d);
	e->no_frames = no_frames(d);
	e->pool_no = pool_at(d, KEY_POOL_ID);
	e->metadata = metadata_at(r, d);
	e->node = node_at(r, d);
	if (e->metadata == UINT32_MAX || e->node == UINT32_MAX)
		return fail(errno);
	return value__of(VALUE_ENTRY, r->n_entries - 1);
}

/* The state with this name. */
static enum snapshot_state state_of(const char *s)
{
	if (!strcmp(s, "active_allocated"))
		return BLOCK_LIVE;
	/* PyTorch's documentation has the second name. */
	if (!strcmp(s, "active_pending_free") || !strcmp(s, "active_awaiting_free"))
		return BLOCK_WAITS;
	return BLOCK_FREE;
}

/* The role that our own export names; CATEGORY_UNKNOWN: none. */
static enum category role_of(const char *s)
{
	static const struct {
		const char *name;
		enum category role;
	} roles[] = {
		{ "parameter", CATEGORY_PARAMETER },
		{ "buffer", CATEGORY_BUFFER },
		{ "gradient", CATEGORY_GRADIENT },
		{ "optimizer_state", CATEGORY_OPTIMIZER_STATE },
		{ "kv_cache", CATEGORY_KV_CACHE },
	};

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (!strcmp(roles[i].name, s))
			return roles[i].role;
	return CATEGORY_UNKNOWN;
}

/* PyTorch 2.0 has the requested size and the stack of a block in its history, newest first. */
static void take_history(const struct records *r, value v, struct snapshot_block *b)
{
	const struct value_list *l;
	value first;

	if (value__kind(v) != VALUE_LIST)
		return;
	l = &r->lists[value__number(v)];
	first = l->n ? value_list__at(l, 0) : value__of(VALUE_NONE, 0);
	if (value__kind(first) != VALUE_HISTORY)
		return;
	b->stack = r->history[value__number(first)].stack;
	b->requested = r->history[value__number(first)].size;
}

static value make_block(struct records *r, const struct draft *d)
{
	struct snapshot_block *b = ADD(r, blocks);

	if (!b)
		return fail(ENOMEM);
	b->state = state_of(records__string(r, d->at[KEY_STATE]));
	b->size = number_at(r, d, KEY_SIZE);
	if (has(d, KEY_HISTORY) && b->state != BLOCK_FREE)
		take_history(r, d->at[KEY_HISTORY], b);
	if (has(d, KEY_REQUESTED_SIZE))
		b->requested = number_at(r, d, KEY_REQUESTED_SIZE);
	if (has(d, KEY_FRAMES))
		b->stack = stack_at(d);
	b->metadata = metadata_at(r, d);
	b->node = node_at(r, d);
	b->role = (uint8_t)role_of(records__string(r, value_at(d, KEY_ROLE)));
	b->inferred = number_at(r, d, KEY_ROLE_INFERRED);
	if (b->metadata == UINT32_MAX || b->node == UINT32_MAX)
		return fail(errno);
	return value__of(VALUE_BLOCK, r->n_blocks - 1);
}

static value make_segment(struct records *r, const struct draft *d)
{
	struct snapshot_segment *s = ADD(r, segments);

	if (!s)
		return fail(ENOMEM);
	s->addr = number_at(r, d, KEY_ADDRESS);
	s->size = number_at(r, d, KEY_TOTAL_SIZE);
	s->stream = number_at(r, d, KEY_STREAM);
	s->device = (uint32_t)number_at(r, d, KEY_DEVICE);
	s->stack = stack_at(d);
	s->pool_no = pool_at(d, KEY_SEGMENT_POOL_ID);
	s->small = has(d, KEY_SEGMENT_TYPE) &&
		   !strcmp(records__string(r, d->at[KEY_SEGMENT_TYPE]), "small");
	s->expandable = number_at(r, d, KEY_IS_EXPANDABLE);
	/* A list of blocks is that of one segment: the others that refer to it get none. */
	if (has(d, KEY_BLOCKS) && value__kind(d->at[KEY_BLOCKS]) == VALUE_LIST) {
		s->blocks = r->lists[value__number(d->at[KEY_BLOCKS])];
		r->lists[value__number(d->at[KEY_BLOCKS])].n = 0;
	}
	return value__of(VALUE_SEGMENT, r->n_segments - 1);
}

static value make_history(struct records *r, const struct draft *d)
{
	if (array__grow(&r->history, &r->cap_history, r->n_history + 1, sizeof(*r->history)))
		return fail(ENOMEM);
	r->history[r->n_history].stack = stack_at(d);
	r->history[r->n_history].size = number_at(r, d, KEY_REAL_SIZE);
	return value__of(VALUE_HISTORY, r->n_history++);
}

static value make_note(struct records *r, const struct draft *d)
{
	struct snapshot_note *n = ADD(r, notes);

	if (!n)
		return fail(ENOMEM);
	n->time = number_at(r, d, KEY_TIME_US);
	n->device = (uint32_t)number_at(r, d, KEY_DEVICE);
	n->name = string_of(r, d->at[KEY_NAME]);
	n->ends = !strcmp(records__string(r, d->at[KEY_STAGE]), "END");
	if (n->name == UINT32_MAX)
		return fail(errno);
	return value__of(VALUE_NOTE, r->n_notes - 1);
}

static value take_settings(struct records *r, const struct draft *d)
{
	struct snapshot_settings *s = &r->settings;

	s->expandable = number_at(r, d, KEY_EXPANDABLE_SEGMENTS);
	s->max_split_size = number_at(r, d, KEY_MAX_SPLIT_SIZE);
	if (has(d, KEY_CONF) && value__kind(d->at[KEY_CONF]) == VALUE_TEXT)
		s->conf_no = (uint32_t)value__number(d->at[KEY_CONF]) + 1;
	return value__of(VALUE_SETTINGS, 0);
}

static value take_top(struct records *r, const struct draft *d)
{
	r->top.segments = value_at(d, KEY_SEGMENTS);
	r->top.traces = value_at(d, KEY_DEVICE_TRACES);
	r->top.host_segments = value_at(d, KEY_HOST_SEGMENTS);
	r->top.host_traces = value_at(d, KEY_HOST_TRACES);
	return value__of(VALUE_SNAPSHOT, 0);
}

/* Reads roundup_power2_divisions: {"1": 4, "2": 4 ... "32768": 4}, by MiB. */
static bool take_divisions(struct records *r, const value *items, size_t n)
{
	uint32_t found[16] = { 0 };

	for (size_t i = 0; i + 1 < n; i += 2) {
		const char *key = records__string(r, items[i]);
		unsigned long mib = strtoul(key, NULL, 10);

		if (*key < '1' || *key > '9' || !is_number(items[i + 1]) || (mib & (mib - 1)) ||
		    mib > 1u << 15)
			return false;
		found[__builtin_ctzl(mib)] = (uint32_t)records__number(r, items[i + 1]);
	}
	memcpy(r->settings.divisions, found, sizeof(found));
	return true;
}

value records__dict(struct records *r, const value *items, size_t n)
{
	struct draft d = { .has = 0 };

	for (size_t i = 0; i + 1 < n; i += 2) {
		uint64_t k = value__number(items[i]);

		if (value__kind(items[i]) != VALUE_TEXT || k >= KEY_NR)
			continue;
		d.at[k] = items[i + 1];
		d.has |= UINT64_C(1) << k;
	}
	if (has(&d, KEY_ACTION))
		return make_entry(r, &d);
	if (has(&d, KEY_FILENAME) && has(&d, KEY_NAME))
		return make_frame(r, d.at[KEY_FILENAME], d.at[KEY_NAME],
				  number_at(r, &d, KEY_LINE));
	if (has(&d, KEY_STATE) && has(&d, KEY_SIZE))
		return make_block(r, &d);
	if (has(&d, KEY_SEGMENTS) || has(&d, KEY_DEVICE_TRACES))
		return take_top(r, &d);
	if (has(&d, KEY_TOTAL_SIZE))
		return make_segment(r, &d);
	if (has(&d, KEY_REAL_SIZE))
		return make_history(r, &d);
	if (has(&d, KEY_STAGE) && has(&d, KEY_NAME))
		return make_note(r, &d);
	if (has(&d, KEY_CONF) || has(&d, KEY_EXPANDABLE_SEGMENTS))
		return take_settings(r, &d);
	if (n && take_divisions(r, items, n))
		return value__of(VALUE_DIVISIONS, 0);
	return n ? value__of(VALUE_OTHER, 0) : value__of(VALUE_EMPTY, 0);
}

/* ---- lists ---- */

value value_list__at(const struct value_list *l, size_t i)
{
	return l->items ? l->items[i] : l->first + ((value)i << VALUE_BITS);
}

/* True if all values of the list are of this kind. */
static bool all_of(const struct value_list *l, enum value_kind kind)
{
	for (size_t i = 0; i < l->n; i++)
		if (value__kind(value_list__at(l, i)) != kind)
			return false;
	return true;
}

/* Makes the list a simpler value if it is one: a list of unknown values is unknown, and a list of
 * frames is a stack. */
value records__list(struct records *r, struct value_list *l)
{
	value v;

	if (!l->n || all_of(l, VALUE_OTHER)) {
		v = value__of(l->n ? VALUE_OTHER : VALUE_EMPTY, 0);
		free(l->items);
		return v;
	}
	if (all_of(l, VALUE_FRAME)) {
		v = make_stack(r, l);
		free(l->items);
		return v;
	}
	/* JSON has no tuples: the id of a pool is a list there. */
	if (l->n == 2 && is_number(value_list__at(l, 0)) && is_number(value_list__at(l, 1))) {
		v = records__pair(r, value_list__at(l, 0), value_list__at(l, 1));
		free(l->items);
		return v;
	}
	if (array__grow(&r->lists, &r->cap_lists, r->n_lists + 1, sizeof(*r->lists))) {
		free(l->items);
		return fail(ENOMEM);
	}
	r->lists[r->n_lists] = *l;
	return value__of(VALUE_LIST, r->n_lists++);
}

/* ---- all ---- */

int records__init(struct records *r, struct dict *d)
{
	uint64_t number;

	*r = (struct records){ .dict = d };
	r->texts = calloc(1, sizeof(*r->texts));
	if (!r->texts)
		return -ENOMEM;
	r->texts->at = map64__new();
	r->frame_at = map64__new();
	/* frame 0 is one that is left out */
	if (!r->frame_at || array__grow(&r->frames, &r->cap_frames, 1, sizeof(*r->frames)))
		return -ENOMEM;
	r->frames[r->n_frames++] = (struct frame_record){ .file = UINT64_MAX };
	for (size_t i = 0; r->texts->at && i < KEY_NR; i++)
		if (texts__number(r->texts, key_texts[i], strlen(key_texts[i]), &number) ||
		    number != i)
			return -ENOMEM;
	return r->texts->at ? 0 : -ENOMEM;
}

void records__free(struct records *r)
{
	for (size_t i = 0; i < r->n_lists; i++)
		free(r->lists[i].items);
	free(r->entries);
	free(r->blocks);
	free(r->segments);
	free(r->notes);
	free(r->history);
	free(r->pairs);
	free(r->bigs);
	free(r->lists);
	free(r->frames);
	map64__free(r->frame_at);
	free(r->nodes);
	free(r->optimizer);
	texts__free(r->texts);
	*r = (struct records){ 0 };
}
