/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Phase, module and line of each stack, cached by stack number. */
#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"
#include "record/dict.h"

struct stack_words {
	bool known;
	uint8_t phase[2]; /* enum phase; [1]: on an autograd thread */
	bool has_line;
	bool engine;	    /* no Python code ran since the autograd engine was started */
	bool inside_node;   /* a module was called inside the autograd node */
	bool user_in_node;  /* user code ran inside the node; outside of backward, anywhere */
	uint32_t module;    /* innermost, 0: none */
	uint32_t outermost; /* root module, 0: none */
	bool only_native;   /* no Python frame has a line */
	uint8_t role;	    /* enum category: what the compiled code takes memory for */
	/* Dict locations, if has_line; see enum frame_choice. */
	uint32_t user_loc, inner_loc, native_loc;
};

/* A walk over the frames of a stack, from the root on. Zeroed: before the root. */
struct frame_owners {
	bool library; /* the frames so far: code that no file has is a library's */
};

struct attribution {
	const struct dict *dict;
	const struct facts *facts;
	uint16_t *files; /* flags by dict string */
	size_t nfiles;
	struct stack_words *stacks;
	size_t nstacks;
	uint8_t *threads; /* by thread number; 0: not checked yet, 1: no, 2: autograd thread */
	size_t nthreads;
	int old_torch; /* PyTorch before 2.4 did not name autograd threads; -1: not checked yet */
};
struct stack_words attribution__examine(struct attribution *w, uint32_t stack);
static inline struct stack_words attribution__stack(struct attribution *w, uint32_t stack)
{
	return stack < w->nstacks && w->stacks[stack].known ? w->stacks[stack]
							    : attribution__examine(w, stack);
}
/* Whether s.frames[i] is user code. Call it for each frame from the root, s.n - 1, on. */
bool attribution__is_user(struct attribution *w, struct frame_owners *o, struct dict_stack s,
			  uint32_t i);
/* The dict location that a stack is charged to; 0: it has no line. */
uint32_t attribution__loc(const struct stack_words *w, enum frame_choice which);
enum phase attribution__phase(struct attribution *w, uint32_t stack, uint32_t thread, uint8_t walk);
/*
 * Charges an allocation made in an autograd node. If no Python code ran in the node, the stack of
 * the forward call that made the node replaces e's stack. attribution__charged() is then true for
 * the stack and node. Memory that a library keeps for all its calls, such as a workspace, is no
 * node's, and keeps its stack.
 */
void attribution__charge(struct attribution *w, struct event *e);
bool attribution__charged(const struct attribution *w, uint32_t stack, uint32_t node);
/* The stack whose line of user code counts: stack, or the forward call's that made the node, if
 * only libraries' Python code ran in the node. */
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
bool attribution__stack_has(const struct attribution *w, uint32_t stack, uint32_t module);
void attribution__free(struct attribution *w);
