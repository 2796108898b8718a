/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Phase, module and line of each stack, cached by stack number. */
#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"
#include "record/dict.h"

/* Properties of an allocation that follow from its stack. */
struct stack_origin {
	bool known;	  /* false: this entry of the cache is empty */
	uint8_t phase[2]; /* enum phase; phase[1]: if the stack is that of an autograd thread */
	bool has_line;
	bool engine; /* the innermost code is autograd's engine, or the Python code that started it */
	bool inside_node;   /* a module was called inside the autograd node */
	bool user_in_node;  /* user code ran inside the node, or outside of backward anywhere */
	uint32_t module;    /* innermost module, 0: none */
	uint32_t outermost; /* root module, 0: none */
	bool only_native;   /* no Python frame has a line */
	bool between; /* of blocks in steps whose stacks were not recorded (record/detail.h) */
	uint8_t role; /* enum category that the compiled code on the stack implies */
	/* enum category that PyTorch's own Python code on the stack implies, if the block stays */
	uint8_t made_for;
	/* Line of torch.nn.Module._apply that moved the block to the device; 0: none did. */
	uint32_t moved_by;
	/* Dict locations for each enum frame_choice. Valid if has_line. */
	uint32_t user_loc, inner_loc, native_loc;
};

/* State of attribution__is_user() while it walks over a stack, from the root on. Start with zeros. */
struct frame_owners {
	bool library; /* a library generates the code in no file that follows, not the user */
};

struct attribution {
	const struct dict *dict;
	const struct facts *facts;
	uint16_t *files; /* flags by dict string */
	size_t nfiles;
	struct stack_origin *stacks;
	size_t nstacks;
	uint8_t *threads; /* enum thread_kind by thread number */
	size_t nthreads;
	uint32_t moved_by_least, moved_by_most; /* of all stacks so far; 0: none */
	int old_torch; /* 1: PyTorch before 2.4, which names no autograd threads; -1: not checked */
};
/* Examines a stack and caches the result. Use attribution__stack(), which reads the cache first. */
struct stack_origin attribution__examine(struct attribution *w, uint32_t stack);
static inline struct stack_origin attribution__stack(struct attribution *w, uint32_t stack)
{
	return stack < w->nstacks && w->stacks[stack].known ? w->stacks[stack]
							    : attribution__examine(w, stack);
}
/* Whether s.frames[i] is user code. Call it for each frame of s in turn, from the root (s.n - 1) to
 * the innermost (0). */
bool attribution__is_user(struct attribution *w, struct frame_owners *o, struct dict_stack s,
			  uint32_t i);
/* The dict location that a stack is charged to; 0: it has no line. */
uint32_t attribution__loc(const struct stack_origin *w, enum frame_choice which);
enum phase attribution__phase(struct attribution *w, uint32_t stack, uint32_t thread, uint8_t walk);
/*
 * Charges an allocation made in an autograd node. If no Python code ran in the node, the stack of
 * the forward call that made the node replaces e's stack. attribution__charged() is then true for
 * the stack and node. Memory that a library keeps for all its calls, such as a workspace, belongs
 * to no node and keeps its stack.
 */
void attribution__charge(struct attribution *w, struct event *e);
bool attribution__charged(const struct attribution *w, uint32_t stack, uint32_t node);
/* Returns the stack that has the line to charge: stack, or if only Python code of libraries ran in
 * the autograd node, the stack of the forward call that made the node. */
uint32_t attribution__line_stack(struct attribution *w, uint32_t stack, uint32_t node);
/* Module of an allocation, 0: none. */
uint32_t attribution__module(struct attribution *w, uint32_t stack, uint32_t node, uint8_t walk);
/* Phase of an allocation. In an autograd node it is backward, even if the stack is the forward
 * call's. */
static inline enum phase attribution__node_phase(struct attribution *w, uint32_t stack,
						 uint32_t node, uint32_t thread, uint8_t walk)
{
	return node ? PHASE_BACKWARD : attribution__phase(w, stack, thread, walk);
}
/* Whether a call of the module is on the stack. */
bool attribution__stack_has(const struct attribution *w, uint32_t stack, uint32_t module);
/* True if Module._apply moved the block as a buffer: parameters come first, at an earlier line. */
bool attribution__moves_buffer(const struct attribution *w, const struct stack_origin *origin);
/* True if the recording is made from a snapshot of PyTorch. */
bool attribution__is_snapshot(const struct attribution *w);
void attribution__free(struct attribution *w);
