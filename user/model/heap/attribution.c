/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Phase, module and line of a stack. Each stack is examined once. */
#include "model/heap/attribution.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/files.h"

enum file_flag {
	FILE_KNOWN = 1,
	FILE_LIBRARY = 2,
	/* torch/autograd/{graph,__init__}.py and torch/_tensor.py, whose functions start a
	 * backward */
	FILE_AUTOGRAD = 4,
	FILE_FUNCTION = 8, /* torch/autograd/function.py */
	FILE_OPTIM = 16,
	FILE_DATA = 32,
	FILE_CUDA = 64,	      /* CUDA's driver and runtime */
	FILE_IN_MEMORY = 128, /* code in no file */
	FILE_UNOWNED = 256,   /* generated code, which may be the user's or a library's */
	/* An installed package, or a part of PyTorch that generates code. Other parts of PyTorch
	 * and the standard library only call code that somebody else generated. */
	FILE_GENERATES = 512,
	FILE_STARTS = 1024,  /* multiprocessing's code that a new process runs first */
	FILE_MODULES = 2048, /* torch/nn/modules/ */
	FILE_LOADS = 4096,   /* code that puts a model's weights onto a device */
};

const char *phase__name(enum phase p)
{
	static const char *const names[PHASE_NR] = { "forward", "backward", "optimizer", "data",
						     "other" };

	return (unsigned)p < PHASE_NR ? names[p] : "other";
}

/* True if the file gets FILE_GENERATES. */
static bool generates_code(const char *path, enum file_origin kind)
{
	static const char *const parts[] = { "torch/_functorch/", "torch/_inductor/",
					     "torch/export/", "torch/fx/" };

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (kind == FILE_TORCH && files__after_dir(path, parts[i]))
			return true;
	return kind == FILE_PACKAGE && *path != '<';
}

static bool starts_process(const char *path)
{
	return files__is(path, "multiprocessing/spawn.py") ||
	       files__is(path, "multiprocessing/forkserver.py") ||
	       files__is(path, "multiprocessing/resource_tracker.py");
}

/* transformers 4 and 5, accelerate, safetensors */
static bool loads_weights(const char *path)
{
	return files__is(path, "transformers/core_model_loading.py") ||
	       files__is(path, "accelerate/utils/modeling.py") ||
	       files__is(path, "safetensors/torch.py");
}

/* The enum file_flag bits of a file. */
static uint16_t attribution__file(struct attribution *w, uint32_t file)
{
	const char *path;
	uint16_t flags = FILE_KNOWN;
	enum file_origin kind;

	if (file < w->nfiles && w->files[file])
		return w->files[file];
	path = dict__str(w->dict, file);
	kind = files__kind(path, w->facts);
	if (kind == FILE_GENERATED)
		flags |= FILE_UNOWNED;
	else if (kind != FILE_USER)
		flags |= FILE_LIBRARY;
	if (*path == '<')
		flags |= FILE_IN_MEMORY;
	if (generates_code(path, kind))
		flags |= FILE_GENERATES;
	if (kind == FILE_STDLIB && starts_process(path))
		flags |= FILE_STARTS;
	if (files__has_engine(path))
		flags |= FILE_AUTOGRAD;
	if (files__is(path, "torch/autograd/function.py"))
		flags |= FILE_FUNCTION;
	if (files__after_dir(path, "torch/optim/"))
		flags |= FILE_OPTIM;
	if (files__after_dir(path, "torch/utils/data/"))
		flags |= FILE_DATA;
	if (files__after_dir(path, "torch/nn/modules/"))
		flags |= FILE_MODULES;
	if (loads_weights(path))
		flags |= FILE_LOADS;
	if (text__starts(path, "libcuda.so") || text__starts(path, "libcudart"))
		flags |= FILE_CUDA;
	/* Without memory for the cache, the next call computes the flags again. */
	if (file < dict__counts(w->dict).strings &&
	    !array__grow_zero(&w->files, &w->nfiles, (size_t)file + 1, sizeof(*w->files)))
		w->files[file] = flags;
	return flags;
}

static bool starts_engine(struct attribution *w, uint32_t location)
{
	struct dict_loc loc = dict__get_loc(w->dict, location);

	return (attribution__file(w, loc.file) & FILE_AUTOGRAD) &&
	       files__starts_engine(dict__str(w->dict, loc.file), dict__str(w->dict, loc.func));
}

/* Returns the phase after one more frame on the way from the root to the innermost frame. before:
 * the phase before it. root: the frame is the outermost one. */
static enum phase attribution__next_phase(struct attribution *w, enum phase before,
					  struct dict_frame f, bool root)
{
	uint16_t flags = attribution__file(w, dict__get_loc(w->dict, f.loc).file);

	if (starts_engine(w, f.loc))
		return PHASE_BACKWARD;
	/* The engine calls a custom Function's backward on its own thread, without Python frames
	 * below. */
	if (root && (flags & FILE_FUNCTION))
		return PHASE_BACKWARD;
	if (flags & FILE_OPTIM)
		return PHASE_OPTIMIZER;
	if (f.module)
		/* recomputation (checkpointing) counts as backward */
		return before == PHASE_BACKWARD ? before : PHASE_FORWARD;
	if ((flags & FILE_DATA) && before == PHASE_OTHER)
		return PHASE_DATA;
	return before;
}

/* Returns the function's name without those of classes and functions around it. */
static const char *short_name(const char *function)
{
	const char *dot = strrchr(function, '.');

	return dot ? dot + 1 : function;
}

/* Returns the role of memory that stays and that PyTorch's Python code makes in this frame or in
 * one that it calls: a module's parameters and buffers, made or moved, and an optimizer's state. */
static enum category made_for(struct attribution *w, uint32_t location)
{
	static const char *const modules[] = { "__init__", "reset_parameters", "_apply",
					       "initialize_parameters" };
	struct dict_loc loc = dict__get_loc(w->dict, location);
	uint16_t flags = attribution__file(w, loc.file);
	const char *function;

	if (flags & FILE_LOADS)
		return CATEGORY_PARAMETER;
	if (!(flags & (FILE_MODULES | FILE_OPTIM)))
		return CATEGORY_UNKNOWN;
	function = short_name(dict__str(w->dict, loc.func));
	if (flags & FILE_OPTIM)
		return strcmp(function, "_init_group") ? CATEGORY_UNKNOWN
						       : CATEGORY_OPTIMIZER_STATE;
	for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++)
		if (!strcmp(function, modules[i]))
			return CATEGORY_PARAMETER;
	return CATEGORY_UNKNOWN;
}

/* True if a library, not the user, generated the code of s.frames[i], which is in no file. */
static bool made_by_library(struct attribution *w, const struct frame_owners *o,
			    struct dict_stack s, uint32_t i)
{
	struct dict_loc loc = dict__get_loc(w->dict, s.frames[i].loc);
	const char *func = dict__str(w->dict, loc.func);
	uint32_t called = i ? s.frames[i - 1].loc : 0;

	/* python -c "from multiprocessing.spawn import ...", the command of a child process */
	if (called && attribution__file(w, dict__get_loc(w->dict, called).file) & FILE_STARTS)
		return true;
	/* methods that the standard library's dataclasses generate */
	if (text__starts(func, "__create_fn__."))
		return true;
	/* The user's python -c "..." looks like generated code, too: "<string>". */
	return o->library && !(!strcmp(dict__str(w->dict, loc.file), "<string>") &&
			       files__in_command(w->facts, func));
}

bool attribution__is_user(struct attribution *w, struct frame_owners *o, struct dict_stack s,
			  uint32_t i)
{
	uint32_t loc = s.frames[i].loc;
	uint16_t flags;

	if (!loc)
		return false;
	flags = attribution__file(w, dict__get_loc(w->dict, loc).file);
	if (dict__is_native(w->dict, loc))
		return !(flags & FILE_LIBRARY);
	if (flags & FILE_UNOWNED)
		return !made_by_library(w, o, s, i);
	if (flags & FILE_GENERATES)
		o->library = true;
	else if (!(flags & FILE_LIBRARY))
		o->library = false;
	return !(flags & FILE_LIBRARY);
}

/* Dict locations of a stack's frames of compiled code. 0: none. */
struct native_locs {
	/* Innermost frame outside libraries, with a line if one has. Functions of a library that is
	 * linked into the program often have none, such as those of Rust's. */
	uint32_t user;
	bool user_has_line;
	uint32_t named; /* innermost function whose name says what the memory is for */
	uint32_t any;	/* innermost frame */
	bool engine;	/* a frame is in autograd's engine */
	enum category role;
};

/* True for functions of PyTorch that make tensors for any purpose: they show no role. */
static bool makes_any_tensor(const char *function)
{
	static const char *const made_by[] = { "c10::",
					       "at::detail::empty",
					       "at::detail::_empty",
					       "at::TensorBase at::detail::_empty",
					       "at::native::empty",
					       "at::_ops::empty",
					       "at::empty",
					       "at::(anonymous namespace)::" };

	for (size_t i = 0; i < sizeof(made_by) / sizeof(*made_by); i++)
		if (text__starts(function, made_by[i]))
			return true;
	return false;
}

/* Returns the role of memory that PyTorch allocates in this function or one that it calls.
 * CATEGORY_UNKNOWN: the function does not say. Checked with PyTorch 2.1, 2.11 and 2.15, or their
 * source. */
static enum category role_of_function(const char *function)
{
	static const struct {
		const char *function;
		enum category role;
	} known[] = {
		/* aten/src/ATen/cuda/CublasHandlePool.cpp, CUDABlas.cpp */
		{ "at::cuda::getCurrentCUDABlasHandle", CATEGORY_WORKSPACE },
		{ "at::cuda::getCUDABlasLtWorkspace", CATEGORY_WORKSPACE },
		{ "at::cuda::blas::CublasLtWorkspace", CATEGORY_WORKSPACE },
		/* aten/src/ATen/native/cudnn/Conv_v8.cpp */
		{ "at::native::run_conv_plan", CATEGORY_WORKSPACE },
		{ "at::native::(anonymous namespace)::run_conv_plan", CATEGORY_WORKSPACE },
		/* torch/csrc/distributed/c10d/reducer.cpp */
		{ "c10d::Reducer::initialize_buckets", CATEGORY_BUCKET },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (text__starts(function, known[i].function))
			return known[i].role;
	return CATEGORY_UNKNOWN;
}

/* Adds the next frame, from the root on, so that the innermost one stays. */
static void native_locs__add(struct attribution *w, struct native_locs *n, uint32_t id)
{
	struct dict_loc loc = dict__get_loc(w->dict, id);
	const char *function = dict__str(w->dict, loc.func);
	uint16_t flags = attribution__file(w, loc.file);

	n->any = id;
	/* "+0x1f": an address without a symbol */
	if (*function != '+' && !(flags & FILE_CUDA) && !makes_any_tensor(function))
		n->named = id;
	if (!(flags & FILE_LIBRARY) && (loc.line || !n->user_has_line)) {
		n->user = id;
		n->user_has_line = loc.line;
	}
	n->engine |= text__starts(function, "torch::autograd::Engine::");
	n->role = role_of_function(function) ?: n->role;
}

/* Chooses the stack's lines after all frames are examined. Python frames come first; compiled code
 * counts for user_loc and inner_loc only without them. in_file: location of the innermost Python
 * frame whose code is in a file. 0 is "none" for all locations. */
static void native_locs__choose(const struct native_locs *n, uint32_t in_file,
				struct stack_origin *origin)
{
	origin->only_native = !origin->inner_loc && n->any;
	if (origin->only_native)
		origin->inner_loc = n->any;
	if (!origin->user_loc && origin->only_native)
		origin->user_loc = n->user ?: n->named;
	if (!origin->user_loc)
		origin->user_loc = in_file ?: origin->inner_loc;
	origin->native_loc = n->named ?: n->any;
	if (!origin->native_loc)
		origin->native_loc = origin->user_loc;
	origin->has_line = origin->inner_loc;
}

uint32_t attribution__loc(const struct stack_origin *w, enum frame_choice which)
{
	switch (which) {
	case FRAMES_ALL:
		return w->inner_loc;
	case FRAMES_NATIVE:
		return w->native_loc;
	case FRAMES_USER:
		break;
	}
	return w->user_loc;
}

/* The line of this frame, if it is a call of torch.nn.Module._apply; otherwise `before`. */
static uint32_t moved_by(const struct attribution *w, uint32_t location, uint32_t before)
{
	struct dict_loc loc = dict__get_loc(w->dict, location);

	if (!files__is(dict__str(w->dict, loc.file), "torch/nn/modules/module.py") ||
	    strcmp(short_name(dict__str(w->dict, loc.func)), "_apply") != 0)
		return before;
	return loc.line;
}

bool attribution__moves_buffer(const struct attribution *w, const struct stack_origin *origin)
{
	return origin->moved_by && origin->moved_by == w->moved_by_most &&
	       w->moved_by_least < w->moved_by_most;
}

/* True if a location is that of blocks in steps whose stacks were not recorded. */
static bool is_between(const struct dict *d, uint32_t loc_id)
{
	struct dict_loc loc = dict__get_loc(d, loc_id);

	return !strcmp(dict__str(d, loc.file), DETAIL_FILE) &&
	       !strcmp(dict__str(d, loc.func), DETAIL_BETWEEN);
}

/* Computes what the stack's frames say, from the root to the innermost frame. */
static struct stack_origin examine_frames(struct attribution *w, uint32_t stack)
{
	struct stack_origin origin = { .known = true, .phase = { PHASE_OTHER, PHASE_BACKWARD } };
	struct dict_stack frames = dict__get_stack(w->dict, stack);
	struct native_locs native = { 0 };
	struct frame_owners owners = { 0 };
	/* Locations of the innermost Python frame (0: it has no line), and of the innermost one
	 * whose code is in a file. */
	uint32_t inner = 0, in_file = 0;
	/* A truncated stack lacks its outermost frames, so its last frame is not the root. */
	bool whole = frames.walk == MT_WALK_OK || frames.walk == MT_WALK_FAULT_SELF;

	for (uint32_t i = frames.n; i-- > 0;) {
		struct dict_frame frame = frames.frames[i];

		/* phase[1]: that of what an autograd node does */
		for (int autograd = 0; autograd < 2; autograd++)
			origin.phase[autograd] = attribution__next_phase(
				w, origin.phase[autograd], frame, whole && i == frames.n - 1);
		if (frame.module) {
			origin.module = frame.module;
			origin.inside_node = true;
			if (!origin.outermost)
				origin.outermost = frame.module;
		}
		if (frame.loc && dict__is_native(w->dict, frame.loc)) {
			native_locs__add(w, &native, frame.loc);
			continue;
		}
		inner = frame.loc;
		if (!frame.loc)
			continue;
		origin.made_for = made_for(w, frame.loc) ?: origin.made_for;
		if (origin.made_for == CATEGORY_PARAMETER)
			origin.moved_by = moved_by(w, frame.loc, origin.moved_by);
		if (starts_engine(w, frame.loc))
			/* frames further out are outside all nodes that this engine runs */
			origin.inside_node = origin.user_in_node = false;
		origin.inner_loc = frame.loc;
		if (!(attribution__file(w, dict__get_loc(w->dict, frame.loc).file) &
		      FILE_IN_MEMORY))
			in_file = frame.loc;
		if (attribution__is_user(w, &owners, frames, i)) {
			origin.user_loc = frame.loc;
			origin.user_in_node = true;
		}
	}
	/* Copies of native stacks may end before the engine's frames. */
	origin.engine = inner ? starts_engine(w, inner)
			      : native.engine || (native.any && frames.walk == MT_WALK_TRUNCATED);
	if (native.engine)
		origin.phase[0] = origin.phase[1] = PHASE_BACKWARD;
	origin.role = native.role;
	native_locs__choose(&native, in_file, &origin);
	origin.between = origin.has_line && is_between(w->dict, origin.user_loc);
	return origin;
}

struct stack_origin attribution__examine(struct attribution *w, uint32_t stack)
{
	struct stack_origin origin = examine_frames(w, stack);

	if (origin.moved_by > w->moved_by_most)
		w->moved_by_most = origin.moved_by;
	if (origin.moved_by && (!w->moved_by_least || origin.moved_by < w->moved_by_least))
		w->moved_by_least = origin.moved_by;
	/* Without memory for the cache, the next call examines the stack again. */
	if (stack < dict__counts(w->dict).stacks &&
	    !array__grow_zero(&w->stacks, &w->nstacks, (size_t)stack + 1, sizeof(*w->stacks)))
		w->stacks[stack] = origin;
	return origin;
}

bool attribution__stack_has(const struct attribution *w, uint32_t stack, uint32_t module)
{
	struct dict_stack s = dict__get_stack(w->dict, stack);

	for (uint32_t i = 0; i < s.n; i++)
		if (s.frames[i].module == module)
			return true;
	return false;
}

/* True before PyTorch 2.4. */
static bool attribution__is_old_torch(struct attribution *w)
{
	if (w->old_torch < 0) {
		const char *v = facts__get(w->facts, "torch");
		char *end;
		unsigned long major, minor;

		if (!v || !*v)
			return false; /* the fact "torch" may come later */
		major = strtoul(v, &end, 10);
		minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
		w->old_torch = major < 2 || (major == 2 && minor < 4);
	}
	return w->old_torch;
}

enum thread_kind { THREAD_NOT_CHECKED, THREAD_OTHER, THREAD_AUTOGRAD };

/* True for a thread of the autograd engine, by its name. Remembers the answer. */
static bool is_autograd_thread(struct attribution *w, uint32_t thread)
{
	const char *name;
	uint8_t kind;

	if (thread < w->nthreads && w->threads[thread])
		return w->threads[thread] == THREAD_AUTOGRAD;
	name = dict__str(w->dict, dict__get_thread(w->dict, thread).name);
	kind = strncmp(name, "pt_autograd_", strlen("pt_autograd_")) ? THREAD_OTHER
								     : THREAD_AUTOGRAD;
	if (thread < dict__counts(w->dict).threads &&
	    !array__grow_zero(&w->threads, &w->nthreads, (size_t)thread + 1, sizeof(*w->threads)))
		w->threads[thread] = kind;
	return kind == THREAD_AUTOGRAD;
}

enum phase attribution__phase(struct attribution *w, uint32_t stack, uint32_t thread, uint8_t walk)
{
	bool autograd = is_autograd_thread(w, thread);

	/* PyTorch before 2.4 did not name autograd threads. They have Python state and no frame. */
	if (!stack && walk == MT_WALK_NO_FRAME && !autograd)
		autograd = attribution__is_old_torch(w);
	return attribution__stack(w, stack).phase[autograd];
}

/* True if no frame of the stack ran inside the autograd node: the stack is empty, or its innermost
 * Python frame started the engine. */
static bool attribution__only_engine(struct attribution *w, uint32_t stack, uint8_t walk)
{
	if (stack)
		return attribution__stack(w, stack).engine;
	return walk == MT_WALK_NO_THREAD || walk == MT_WALK_NO_FRAME;
}

void attribution__charge(struct attribution *w, struct event *e)
{
	uint32_t forward = e->node ? dict__get_node(w->dict, e->node).stack : 0;

	/* A stack with a role, such as a workspace, belongs to no node. */
	if (!forward || !attribution__only_engine(w, e->stack, e->walk) ||
	    attribution__stack(w, e->stack).role)
		return;
	e->stack = forward;
	e->walk = dict__get_stack(w->dict, forward).walk;
}

uint32_t attribution__line_stack(struct attribution *w, uint32_t stack, uint32_t node)
{
	uint32_t forward = node ? dict__get_node(w->dict, node).stack : 0;
	struct stack_origin origin;

	if (!forward || forward == stack || !stack)
		return stack;
	origin = attribution__stack(w, stack);
	/* Returns the forward call's stack if only that has the user's code: the node ran Python
	 * code of libraries alone. */
	return origin.has_line && !origin.only_native && !origin.user_in_node && !origin.engine &&
			       !origin.role && attribution__stack(w, forward).user_in_node
		       ? forward
		       : stack;
}

bool attribution__charged(const struct attribution *w, uint32_t stack, uint32_t node)
{
	/* A stack inside a backward has an engine frame, and a forward call's stack has none. */
	return node && stack && dict__get_node(w->dict, node).stack == stack;
}

uint32_t attribution__module(struct attribution *w, uint32_t stack, uint32_t node, uint8_t walk)
{
	struct stack_origin origin = attribution__stack(w, stack);
	struct dict_node node_facts = dict__get_node(w->dict, node);

	/* A node with a name accumulates a parameter's gradient: its module is the parameter's. */
	if (node_facts.name && node_facts.module && attribution__charged(w, stack, node))
		return node_facts.module;
	/* The stack tells the module: it is the forward call's, or has a call within the node. */
	if (!node || attribution__charged(w, stack, node) || origin.inside_node)
		return origin.module;
	if (node_facts.module || (!stack && !attribution__only_engine(w, stack, walk)))
		return node_facts.module;
	/* Without a module call in the node, the module is that of the forward call that made the
	 * node. */
	return attribution__stack(w, node_facts.stack).module;
}

bool attribution__is_snapshot(const struct attribution *w)
{
	const char *source = facts__get(w->facts, "source");

	return source && !strcmp(source, "snapshot");
}

void attribution__free(struct attribution *w)
{
	if (!w)
		return;
	free(w->files);
	free(w->stacks);
	free(w->threads);
	free(w);
}
